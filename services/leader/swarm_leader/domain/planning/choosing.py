"""Which fellows a model goes on when nobody names them: the roomiest, as few as fit, or faster ones. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from swarm_core.errors import NoFellow, SwarmError

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.faster import choose_faster
from swarm_leader.domain.planning.placing import place_any_order
from swarm_leader.domain.planning.plan import Plan
from swarm_leader.domain.planning.refusals import busy, not_enough_able, refuse_lack, too_few
from swarm_leader.domain.planning.ring_needs import find_lack
from swarm_leader.domain.planning.too_small import too_small
from swarm_leader.domain.planning.wanted import Wanted


def choose_unless_busy(wanted: Wanted, fellows: Sequence[FellowFacts]) -> Plan:
    """The leader's choice among the fellows with a place. Raises Conflict only where waiting for one would help."""
    idle = [fellow for fellow in fellows if not fellow.busy_with]
    if len(idle) == len(fellows):
        return _choose(wanted, fellows)
    try:
        return _choose(wanted, idle)
    except SwarmError:
        _choose(wanted, fellows)  # refuses what no wait would change
        raise busy(fellows) from None


def _choose(wanted: Wanted, fellows: Sequence[FellowFacts]) -> Plan:
    """The leader's choice: the roomiest fellows that can, or faster ones where all speeds are known.

    As many as asked for, else as trained, else as few as fit or more where that is faster.
    """
    ranked = sorted(fellows, key=lambda one: (one.room_bytes is None, -(one.room_bytes or 0), one.name, one.fellow_id))
    if not any(fellow.capabilities.serve for fellow in ranked):
        names = ", ".join(sorted(fellow.name for fellow in ranked))
        raise NoFellow(f"none of the connected fellows serves models ({names})", connected=len(ranked))
    split = wanted.manifest.split
    if asked := wanted.request.num_stages:
        usual = _choose_count(wanted, ranked, asked)
        return usual if wanted.layer_starts(asked) else choose_faster(wanted, ranked, usual, asked)
    if split is None:
        return choose_faster(wanted, ranked, _choose_fewest(wanted, ranked))
    try:
        return _choose_count(wanted, ranked, split.stage_count)
    except SwarmError:
        if wanted.is_bound:
            raise
    planned = _choose_fewest(wanted, ranked)
    stages = f"{len(planned.stages)} stage{'' if len(planned.stages) == 1 else 's'}"
    note = f"served over {stages}: the {split.stage_count} it was trained over are not possible"
    return replace(planned, notes=(note, *planned.notes))


def _choose_count(wanted: Wanted, ranked: Sequence[FellowFacts], stage_count: int) -> Plan:
    """Over this many stages."""
    able = _able(wanted, ranked, stage_count)
    ring = able[:stage_count]
    if len(ring) < stage_count:
        raise not_enough_able(ranked, able, wanted.needs(stage_count))
    placed = place_any_order(wanted, ring)
    if placed is None:
        raise too_small(wanted, ring)
    return placed


def _choose_fewest(wanted: Wanted, ranked: Sequence[FellowFacts]) -> Plan:
    """Over as few stages as fit."""
    tried: list[FellowFacts] = []
    for stage_count in range(1, min(len(ranked), wanted.manifest.layer_count) + 1):
        ring = _able(wanted, ranked, stage_count)[:stage_count]
        if len(ring) < stage_count:
            continue
        placed = place_any_order(wanted, ring)
        if placed is not None:
            return placed
        tried = ring
    if tried:
        raise too_small(wanted, tried)
    serving = next(fellow for fellow in ranked if fellow.capabilities.serve)
    for stage_count in range(1, len(ranked) + 1):
        refuse_lack(serving, wanted.needs(stage_count))
    raise too_few(2, [serving.name], "able")


def _able(wanted: Wanted, ranked: Sequence[FellowFacts], stage_count: int) -> list[FellowFacts]:
    needs = wanted.needs(stage_count)
    return [fellow for fellow in ranked if find_lack(fellow, needs) is None]
