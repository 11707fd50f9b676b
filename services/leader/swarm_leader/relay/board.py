"""All lanes of a relay and the epochs that fence them. No gRPC."""

from collections import OrderedDict

from swarm_core.errors import Conflict, Overloaded, StaleEpoch

from swarm_leader.relay.lane import Lane, LaneLimits, Tally

CHANNELS_MAX = 4096  # remembered (lane, channel) pairs; a ring of 16 stages has 16


class LaneBoard:
    """Finds or makes the lane an end attaches to."""

    def __init__(self, limits: LaneLimits, channels_max: int = CHANNELS_MAX) -> None:
        self._limits = limits
        self._channels_max = channels_max
        self._lanes: OrderedDict[tuple[str, str], Lane] = OrderedDict()
        self.tally = Tally()

    def attach(self, ring: str, channel: str, epoch: int, role: str) -> Lane:
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
                lane.end(StaleEpoch(f"{channel} of {ring} moved on to epoch {epoch}", epoch=epoch))
            lane = self._open(key, epoch)
        if role in lane.attached or lane.ended:
            raise Conflict(f"the {role} of {channel} of {ring} was attached in epoch {epoch} already; rewire the ring")
        lane.attached.add(role)
        return lane

    def lanes(self) -> list[Lane]:
        """Every lane remembered, oldest first; ended ones stay to fence their epochs."""
        return list(self._lanes.values())

    @property
    def live_count(self) -> int:
        """Lanes that an end is attached to."""
        return sum(1 for lane in self._lanes.values() if lane.attached and not lane.ended)

    def _make_room(self, more_bytes: int) -> None:
        """The fullest lane ends where all together would hold too much: its receiver is the one that does not read.

        One payload is always taken, whatever the limit: then nothing else is held.
        """
        while self.tally.queued_bytes and self.tally.queued_bytes + more_bytes > self._limits.total_bytes_max:
            fullest = max(self._lanes.values(), key=lambda lane: lane.queued_bytes)
            held_bytes = fullest.queued_bytes
            words = f"the relay holds as much as it may, and {held_bytes:,} bytes of it wait for {fullest.name}"
            fullest.end(Overloaded(f"{words}: its receiver does not read", bytes=held_bytes))

    def _open(self, key: tuple[str, str], epoch: int) -> Lane:
        if key not in self._lanes and len(self._lanes) >= self._channels_max:
            ended = next((old for old, lane in self._lanes.items() if lane.ended), None)
            if ended is None:
                raise Overloaded(f"the relay carries {self._channels_max} live lanes already")
            del self._lanes[ended]
        self._lanes[key] = Lane(f"{key[1]} of {key[0]}", epoch, self._limits, self.tally, self._make_room)
        self._lanes.move_to_end(key)
        return self._lanes[key]
