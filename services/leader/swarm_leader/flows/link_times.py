"""What rings measured between two fellows, remembered for the plans of later ones. In memory alone; decides nothing."""

from swarm_leader.domain.capabilities import LinkTime

PAIRS_MAX = 4096  # the oldest is forgotten before one more


class LinkTimes:
    """There and back between fellows, by who measured it, to whom and on which kind of way; the newest counts."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, bool], float] = {}

    def note(self, fellow_id: str, peer_id: str, is_relayed: bool, round_trip_ms: float) -> None:
        """Beats on a link said so."""
        key = (fellow_id, peer_id, is_relayed)
        if key not in self._times and len(self._times) >= PAIRS_MAX:
            del self._times[next(iter(self._times))]
        self._times[key] = round_trip_ms

    def of(self, fellow_id: str) -> tuple[LinkTime, ...]:
        """What this fellow measured, in a fixed order."""
        measured = sorted((peer, way, ms) for (one, peer, way), ms in self._times.items() if one == fellow_id)
        return tuple(LinkTime(peer, way, ms) for peer, way, ms in measured)

    def forget(self, fellow_id: str) -> None:
        """The fellow was deleted."""
        for key in [key for key in self._times if fellow_id in key[:2]]:
            del self._times[key]
