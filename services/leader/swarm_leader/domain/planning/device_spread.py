"""Which layers of a stage go on which of its fellow's devices. Pure arithmetic: bytes in, runs of layers out."""

from collections.abc import Callable, Sequence

from swarm_leader.domain.device_facts import Room

# Everything that layers [start, stop) take on one device, in bytes. Never less for a larger stop or a smaller start.
Needs = Callable[[int, int], int]
# (position in the room, first layer, first layer no longer)
Run = tuple[int, int, int]
_WHOLE = 1000  # a share of a device's free memory, in thousandths


def fits(needs: Needs, start: int, stop: int, room: Room) -> bool:
    """Whether layers [start, stop) can be spread over a fellow's devices at all."""
    if len(room) == 1:
        return room[0] is None or needs(start, stop) <= room[0]
    return _fill(needs, start, stop, room) is not None


def spread(needs: Needs, start: int, stop: int, room: Room) -> list[Run] | None:
    """Consecutive runs in device order, each device full to the same share of its free memory; None when none fit.

    A device that cannot take a single layer is left out. Of a device whose free memory is unknown as much is taken as
    of an average one. The same facts give the same runs.
    """
    if not fits(needs, start, stop, room):
        return None
    if len(room) == 1:
        return [(0, start, stop)]
    known = [free for free in room if free is not None]
    usual = sum(known) // len(known) if known else needs(start, stop)
    low, high = 1, _WHOLE  # all of a device fits, or it would not have been said to fit
    best = _fill(needs, start, stop, room)
    while low < high:
        share = (low + high) // 2
        tried = _fill(needs, start, stop, [(usual if free is None else free) * share // _WHOLE for free in room])
        if tried is None:
            low = share + 1
        else:
            best, high = tried, share
    return best


def _fill(needs: Needs, start: int, stop: int, limits: Sequence[int | None]) -> list[Run] | None:
    """Fill devices one after another as far as each goes: if anything fits, this does."""
    runs: list[Run] = []
    for position, limit in enumerate(limits):
        furthest = _furthest(needs, start, stop, limit)
        if furthest > start:
            runs.append((position, start, furthest))
            start = furthest
        if start == stop:
            return runs
    return None


def _furthest(needs: Needs, start: int, stop: int, limit: int | None) -> int:
    """How far one device goes; `start` when not one layer fits."""
    if limit is None or needs(start, stop) <= limit:
        return stop
    low, high = start, stop - 1
    while low < high:
        middle = (low + high + 1) // 2
        if needs(start, middle) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
