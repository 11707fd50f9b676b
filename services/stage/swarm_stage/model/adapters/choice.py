"""Which adapter a session runs with, and so each row of what is computed. Holds no numbers of adapters."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from swarm_core.errors import BadRequest

BASE = 0  # the place of no adapter
# An adapter a row, as its session chose: 0 is the base, else the place in the stage's order, from 1. None: all base.
Chosen = Sequence[int] | None
Run = tuple[int, int, int]  # rows from, to (half open), and the adapter they chose


class AdapterChoice:
    """Which adapters sessions of a slice may choose, by their places in the stage's order, from 1.

    place: the one that modules run with now; set before each run of transformers' own forward.
    """

    def __init__(self, places: Mapping[str, int]) -> None:
        """places: by the adapters' ids; BASE where one takes effect in every session anyway."""
        self._places = dict(places)
        self.place = BASE

    @property
    def choices(self) -> Mapping[str, int]:
        """What can be chosen beside the base: places by ids."""
        return {model_id: place for model_id, place in self._places.items() if place != BASE}

    def place_of(self, model_id: str) -> int:
        """Where an adapter stands; no id is the base. Raises BadRequest for one the stage does not hold."""
        if not model_id:
            return BASE
        if model_id not in self._places:
            raise BadRequest(f"this stage holds no adapter {model_id[:200]!r}", field="adapter")
        return self._places[model_id]


def runs_of(chosen: Chosen, rows: int) -> Sequence[Run]:
    """Neighbouring rows with the same adapter, as few runs as there are changes."""
    if chosen is None:
        return ((0, rows, 0),)
    assert len(chosen) == rows, (len(chosen), rows)
    return _runs_of(tuple(chosen))


@lru_cache(maxsize=256)  # asked by every product of a step
def _runs_of(chosen: tuple[int, ...]) -> tuple[Run, ...]:
    starts = [row for row, place in enumerate(chosen) if not row or place != chosen[row - 1]]
    return tuple((start, stop, chosen[start]) for start, stop in zip(starts, [*starts[1:], len(chosen)], strict=True))
