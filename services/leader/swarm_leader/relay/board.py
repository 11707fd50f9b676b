"""All lanes of a relay and the epochs that fence them. No gRPC."""

from collections import OrderedDict

from swarm_core.errors import Conflict, Overloaded, StaleEpoch

from swarm_leader.relay.lane import Lane, LaneLimits

CHANNELS_MAX = 4096  # remembered (lane, channel) pairs; a ring of 16 stages has 16


class LaneBoard:
    """Finds or makes the lane an end attaches to."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._lanes: OrderedDict[tuple[str, str], Lane] = OrderedDict()

    async def attach(self, ring: str, channel: str, epoch: int, role: str) -> Lane:
        """The lane of (ring, channel, epoch), with `role` taken on it.

        A newer epoch ends the older lane's ends with StaleEpoch. Raises StaleEpoch for an older one, Conflict when the
        role is taken or the lane of this epoch has ended, Overloaded when there are too many lanes.
        """
        key = (ring, channel)
        lane = self._lanes.get(key)
        if lane is not None and epoch < lane.epoch:
            raise StaleEpoch(f"{channel} of {ring} is at epoch {lane.epoch}; {epoch} is over", epoch=lane.epoch)
        if lane is None or epoch > lane.epoch:
            if lane is not None:
                await lane.end(StaleEpoch(f"{channel} of {ring} moved on to epoch {epoch}", epoch=epoch))
            lane = self._open(key, epoch)
        if role in lane.attached or lane.ended:
            raise Conflict(f"the {role} of {channel} of {ring} was attached in epoch {epoch} already; rewire the ring")
        lane.attached.add(role)
        return lane

    def live_lanes(self) -> list[Lane]:
        """Lanes that have not ended."""
        return [lane for lane in self._lanes.values() if not lane.ended]

    def _open(self, key: tuple[str, str], epoch: int) -> Lane:
        self._lanes[key] = Lane(f"{key[1]} of {key[0]}", epoch, self._limits)
        self._lanes.move_to_end(key)
        while len(self._lanes) > CHANNELS_MAX:
            oldest_key, oldest = next(iter(self._lanes.items()))
            if not oldest.ended and oldest.attached:
                raise Overloaded(f"the relay carries {CHANNELS_MAX} lanes already")
            del self._lanes[oldest_key]
        return self._lanes[key]
