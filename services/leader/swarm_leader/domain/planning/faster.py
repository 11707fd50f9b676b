"""A faster choice of fellows than the roomiest, and who is left out of it and why. Pure; bounded work."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from swarm_core.errors import SwarmError
from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.budget import ModelCost, cost_of
from swarm_leader.domain.planning.links import HOP_MS
from swarm_leader.domain.planning.placing import least_budget, place, place_any_order
from swarm_leader.domain.planning.plan import LeftOut, Plan
from swarm_leader.domain.planning.prediction import read_speed
from swarm_leader.domain.planning.ring_needs import find_lack
from swarm_leader.domain.planning.ring_order import nearest_order
from swarm_leader.domain.planning.split import needed_bytes
from swarm_leader.domain.planning.wanted import Wanted
from swarm_leader.domain.planning.weight_form import form_of

GAIN = 1.05  # a prediction is no closer than this; below it the roomiest fellows are taken, as without speeds
STAGES_MAX = 16  # of a ring that nobody asked for
FELLOWS_MAX = 64  # the fastest of a larger fleet are looked at
PLACED_MAX = 4  # rings worked out in full; the others are only estimated
FAR_MS = 10.0  # beyond it, being far away is worth a word
_LEFT_OUT = " left out: "


@dataclass(frozen=True)
class _Candidate:
    """A fellow with what a token costs it. whole_ms: to compute the whole model. away_ms: there and back to it."""

    fellow: FellowFacts
    whole_ms: float
    away_ms: float

    def part_ms(self, count: int) -> float:
        """What it adds to a ring of so many: its share of the model and its links."""
        return self.whole_ms / count + self.away_ms

    @property
    def room(self) -> float:
        """Free bytes; unknown limits nothing."""
        room_bytes = self.fellow.room_bytes
        return float("inf") if room_bytes is None else float(room_bytes)


def choose_faster(wanted: Wanted, ranked: Sequence[FellowFacts], usual: Plan, stage_count: int = 0) -> Plan:
    """The usual plan, or one that is predicted to be faster by more than GAIN, with those it leaves out in its notes.

    ranked: the fellows it was chosen from. usual: over the roomiest of them, as few as fit. stage_count: asked for; 0
    leaves it open. A speed that is unknown leaves all as usual. Nobody ends another model to be faster.
    """
    if usual.predicted_tokens_per_s is None:
        return usual
    by_id = {fellow.fellow_id: fellow for fellow in ranked}
    ring = [by_id[stage.fellow_id] for stage in usual.stages]
    form = form_of(wanted, ring)
    cost = cost_of(wanted.manifest, form, wanted.adapter_costs(form.storage_dtype))
    candidates = _candidates(cost, ranked, {fellow.fellow_id for fellow in ring})
    rings = _rings(wanted, cost, candidates, usual, stage_count)
    if nearest_order(_by_rank(ring, ranked)) != _by_rank(ring, ranked):
        rings.append(ring)
    best = usual
    for tried in rings:
        placed = _try(wanted, _by_rank(tried, ranked))
        if placed is not None and (placed.predicted_tokens_per_s or 0.0) > (best.predicted_tokens_per_s or 0.0):
            best = placed
    if (best.predicted_tokens_per_s or 0.0) <= GAIN * usual.predicted_tokens_per_s:
        return usual
    left_out = _left_out(usual, best, by_id)
    notes = tuple(f"{one.name}{_LEFT_OUT}{one.reason}" for one in left_out)
    return replace(best, notes=(*best.notes, *notes), forecast=replace(best.forecast, left_out=left_out))


def still_true(notes: Iterable[str], holders: Collection[str]) -> tuple[str, ...]:
    """The notes of a plan, without those on who was left out and holds a stage by now. holders: their names."""
    return tuple(note for note in notes if note.partition(_LEFT_OUT)[0] not in holders)


def _candidates(cost: ModelCost, fellows: Iterable[FellowFacts], usual: set[str]) -> list[_Candidate]:
    """Those whose speed is known, the fastest first. usual: ids that may end other models, as they would anyway."""
    whole = LayerRange(0, cost.layer_count, cost.layer_count)
    found = []
    for fellow in fellows:
        speed = read_speed(fellow)
        if speed and not (fellow.makes_room_of and fellow.fellow_id not in usual):
            on_processor = any(device.is_processor for device in fellow.devices)
            whole_ms = 1000 * cost.read_bytes(whole, on_processor) / speed
            found.append(_Candidate(fellow, whole_ms, fellow.leader_round_trip_ms or 0.0))
    found.sort(key=lambda one: (one.whole_ms, one.away_ms, one.fellow.name, one.fellow.fellow_id))
    return found[:FELLOWS_MAX]


def _rings(
    wanted: Wanted, cost: ModelCost, candidates: Sequence[_Candidate], usual: Plan, stage_count: int
) -> list[list[FellowFacts]]:
    """The most promising rings by an estimate, each of other fellows; at most PLACED_MAX."""
    longest = min(len(candidates), cost.layer_count, STAGES_MAX)
    counts = (stage_count,) if stage_count else range(1, longest + 1)
    estimated: list[tuple[float, int, list[FellowFacts]]] = []
    for count in counts:
        needs = wanted.needs(count)
        able = [one for one in candidates if find_lack(one.fellow, needs) is None]
        chosen = _choose(wanted, cost, able, count) if len(able) >= count else None
        if chosen is not None:
            estimated.append((_estimate_ms(chosen), count, [one.fellow for one in chosen]))
    estimated.sort(key=lambda one: one[:2])
    used = {stage.fellow_id for stage in usual.stages}
    rings = [ring for _, _, ring in estimated if {fellow.fellow_id for fellow in ring} != used]
    return rings[:PLACED_MAX]


def _choose(wanted: Wanted, cost: ModelCost, able: Sequence[_Candidate], count: int) -> list[_Candidate] | None:
    """The fellows that add least to a ring of so many; the smallest gives way to a roomier one until all fits."""
    ordered = sorted(able, key=lambda one: one.part_ms(count))
    chosen, others = ordered[:count], ordered[count:]
    needed = needed_bytes(cost, least_budget(wanted, [one.fellow for one in chosen]))
    for _ in range(count):
        if sum(one.room for one in chosen) >= needed:
            return chosen
        smallest = min(chosen, key=lambda one: one.room)
        roomier = [one for one in others if one.room > smallest.room]
        if not roomier:
            return None
        largest = max(roomier, key=lambda one: one.room)
        chosen = [*(one for one in chosen if one is not smallest), largest]
        others = [one for one in others if one is not largest]
    return chosen if sum(one.room for one in chosen) >= needed else None


def _estimate_ms(chosen: Sequence[_Candidate]) -> float:
    """A lap if all stages took equally long; exact for one stage."""
    count = len(chosen)
    if count == 1:
        return chosen[0].whole_ms
    compute_ms = count / sum(1 / one.whole_ms if one.whole_ms else float("inf") for one in chosen)
    return compute_ms + sum(HOP_MS + one.away_ms for one in chosen)


def _by_rank(ring: Sequence[FellowFacts], ranked: Sequence[FellowFacts]) -> list[FellowFacts]:
    """The fellows in the order in which they are ranked."""
    chosen = {fellow.fellow_id for fellow in ring}
    return [fellow for fellow in ranked if fellow.fellow_id in chosen]


def _try(wanted: Wanted, ring: Sequence[FellowFacts]) -> Plan | None:
    """Over these fellows, near ones side by side where that fits; None when nothing does, or one of them cannot."""
    try:
        ordered = nearest_order(ring)
        near = place(wanted, ordered) if ordered != list(ring) and not wanted.layer_starts(len(ring)) else None
        return near or place_any_order(wanted, ring)
    except SwarmError:
        return None


def _left_out(usual: Plan, chosen: Plan, by_id: dict[str, FellowFacts]) -> tuple[LeftOut, ...]:
    """Those that the roomiest ring would have had, and why this one does without them."""
    used = [by_id[stage.fellow_id] for stage in chosen.stages]
    ids = {fellow.fellow_id for fellow in used}
    left = [by_id[stage.fellow_id] for stage in usual.stages if stage.fellow_id not in ids]
    speeds = f"{usual.predicted_tokens_per_s:.1f} tokens/s with it, {chosen.predicted_tokens_per_s:.1f} without"
    has_links = len(usual.stages) > 1
    return tuple(
        LeftOut(fellow.fellow_id, fellow.name, "; ".join((speeds, *_what_is_slow(fellow, used, has_links))))
        for fellow in sorted(left, key=lambda fellow: fellow.name)
    )


def _what_is_slow(fellow: FellowFacts, used: Sequence[FellowFacts], has_links: bool) -> list[str]:
    """What makes this fellow slower than those that are used, in numbers. has_links: distance counts."""
    words = []
    away, nearer = fellow.leader_round_trip_ms, [one.leader_round_trip_ms or 0.0 for one in used]
    if has_links and away is not None and away > FAR_MS and away > 2 * max(nearer):
        words.append(f"{away:.0f} ms away")
    own, others = read_speed(fellow), [read_speed(one) or 0.0 for one in used]
    if own is not None and own < min(others) / GAIN:
        words.append(f"it reads {own / 1e9:.1f} GB/s, the others at least {min(others) / 1e9:.1f}")
    return words
