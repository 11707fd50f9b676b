"""Who is there, by leases on the leader's monotonic clock. Holds no links and tells nobody; the sweep asks."""

from dataclasses import dataclass
from enum import StrEnum

from swarm_core.clock import Clock


class FellowState(StrEnum):
    """Whether a fellow is there; the same words as leader.v1.Fellow.state."""

    CONNECTED = "connected"  # link open, lease running
    SILENT = "silent"  # link gone or not yet back, lease running
    LOST = "lost"  # lease over


@dataclass
class _Lease:
    expires_s: float
    is_linked: bool
    is_reported: bool = False
    is_extended: bool = False


class Leases:
    """One lease a fellow. A fellow that was never granted one is lost."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self.lease_s = lease_s
        self._leases: dict[str, _Lease] = {}
        self._judged_s: float | None = None
        self.lost_count = 0  # leases that ran out since the start

    def grant(self, fellow_id: str, is_linked: bool = True, lease_s: float | None = None) -> None:
        """Start a whole lease: at a registration, at every heartbeat, and unlinked for every fellow known at start-up.

        lease_s: another length than usual, in seconds.
        """
        length_s = self.lease_s if lease_s is None else lease_s
        self._leases[fellow_id] = _Lease(self._clock.monotonic_s() + length_s, is_linked)

    def break_link(self, fellow_id: str) -> None:
        """The link broke; the lease runs on."""
        lease = self._leases.get(fellow_id)
        if lease is not None:
            lease.is_linked = False

    def forget(self, fellow_id: str) -> None:
        """The fellow was deleted."""
        self._leases.pop(fellow_id, None)

    def is_running(self, fellow_id: str) -> bool:
        """Whether its lease is not over."""
        return self.state(fellow_id) is not FellowState.LOST

    def state(self, fellow_id: str) -> FellowState:
        """Where the fellow stands now."""
        lease = self._leases.get(fellow_id)
        if lease is None or lease.expires_s <= self._clock.monotonic_s():
            return FellowState.LOST
        return FellowState.CONNECTED if lease.is_linked else FellowState.SILENT

    def take_lost(self) -> list[str]:
        """Fellows whose lease ran out since the last call, each once per lease.

        When the fault is rather the leader's own, nobody is lost and every lease runs one whole lease more: when this
        call comes later than half a lease after the last one (the leader stood still and read no heartbeats), and when
        of several fellows not one was heard of for half a lease (its network). Their leases do not end in one moment:
        each began with a heartbeat of its own. The latter is believed the second time.
        """
        now_s = self._clock.monotonic_s()
        is_late = self._judged_s is not None and now_s - self._judged_s > self.lease_s / 2
        self._judged_s = now_s
        running = {fellow_id: lease for fellow_id, lease in self._leases.items() if not lease.is_reported}
        lost = sorted(fellow_id for fellow_id, lease in running.items() if lease.expires_s <= now_s)
        is_everyone = len(running) > 1 and all(lease.expires_s - now_s < self.lease_s / 2 for lease in running.values())
        if is_late or (lost and is_everyone and not any(lease.is_extended for lease in running.values())):
            for lease in running.values():
                lease.expires_s = max(lease.expires_s, now_s + self.lease_s)
                lease.is_extended = lease.is_extended or not is_late
            return []
        for fellow_id in lost:
            self._leases[fellow_id].is_reported = True
        self.lost_count += len(lost)
        return lost
