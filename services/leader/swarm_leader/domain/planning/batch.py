"""How many sessions a ring decodes in one step, for the sake of its oldest card. Pure."""

from collections.abc import Sequence

from swarm_leader.domain.capabilities import FellowFacts

# Compute capability of Ampere. Specification, "Small batches on older cards": on cards before it a step of 4 sessions
# took 671 ms against 120 ms of one, while 2 cost little more than one.
AMPERE = (8, 0)
OLD_CARD_BATCH = 2
OLD_CARD_BATCH_BY_ROWS = 4  # rows of a 4-bit matmul split over sessions keep an old card's step short
NO_CAP = 0


def plan_batch_max(ring: Sequence[FellowFacts], asked: int | None) -> tuple[int, tuple[str, ...]]:
    """The cap for every stage, 0 for none, and in words whose card it is for.

    asked: the operator's, 0 for none; None leaves it to the cards. Processors, and cards that do not say what they can,
    set no cap.
    """
    if asked is not None:
        return asked, ()
    old = [fellow for fellow in ring if fellow.compute_capability is not None and fellow.compute_capability < AMPERE]
    if not old:
        return NO_CAP, ()
    by_rows = all(fellow.capabilities.serve_4bit_rows for fellow in ring)
    batch_max = OLD_CARD_BATCH_BY_ROWS if by_rows else OLD_CARD_BATCH
    cards = ", ".join(f"{fellow.name} ({_version(fellow)})" for fellow in old)
    return batch_max, (f"a step takes at most {batch_max} replies: older than compute capability 8.0: {cards}",)


def _version(fellow: FellowFacts) -> str:
    return ".".join(map(str, fellow.compute_capability or ()))
