"""In which order fellows stand in a ring, where links of theirs were measured: each next to those it is near. Pure."""

from collections.abc import Sequence

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.links import measured_round_trip_ms, travel_ms

GAIN_MS = 1.0  # a lap must become shorter by this: less is what one machine's links vary by


def nearest_order(ring: Sequence[FellowFacts]) -> list[FellowFacts]:
    """The ring so that a lap travels less, from the same first fellow on; as it was when nothing is gained or known.

    From every fellow once, always on to the nearest that is left (n^3 looks for n fellows), and the shortest lap found.
    By the leader every order of a ring is equally long, so without a measured link nothing is tried. A link is taken
    for what was measured of it, direct or relayed, whichever is shorter.
    """
    count = len(ring)
    if count < 3 or not any(fellow.link_times for fellow in ring):
        return list(ring)
    ways = [[_way(one, other) for other in ring] for one in ring]
    best = list(range(count))
    best_ms = _lap_ms(ways, best) - GAIN_MS
    for start in range(count):
        tried = _walk(ways, start)
        lap_ms = _lap_ms(ways, tried)
        if lap_ms < best_ms:
            best, best_ms = tried, lap_ms
    first = best.index(0)
    return [ring[index] for index in (*best[first:], *best[:first])]


def _walk(ways: Sequence[Sequence[float]], start: int) -> list[int]:
    """Always on to the nearest that is left; at a tie the one that stood first."""
    walked, left = [start], [index for index in range(len(ways)) if index != start]
    while left:
        following = min(left, key=lambda index: (ways[walked[-1]][index], index))
        walked.append(following)
        left.remove(following)
    return walked


def _lap_ms(ways: Sequence[Sequence[float]], order: Sequence[int]) -> float:
    return sum(ways[one][other] for one, other in zip(order, (*order[1:], order[0]), strict=True))


def _way(one: FellowFacts, other: FellowFacts) -> float:
    """One way between two, in ms; what nobody knows counts nothing."""
    measured = [measured_round_trip_ms(one, other, is_relayed) for is_relayed in (False, True)]
    known = [round_trip_ms / 2 for round_trip_ms in measured if round_trip_ms is not None]
    return min(known) if known else travel_ms(one, other, True) or 0.0
