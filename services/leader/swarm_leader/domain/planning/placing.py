"""A model over one ring of fellows: how many sessions, where it is cut, what each stage takes. Chooses no fellow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarm_core.slices import LayerRange

from swarm_leader.domain.capabilities import UNLIMITED, FellowFacts
from swarm_leader.domain.holding import DeviceRun
from swarm_leader.domain.planning.batch import plan_batch_max
from swarm_leader.domain.planning.budget import ModelCost, WeightForm, cost_of
from swarm_leader.domain.planning.device_spread import spread
from swarm_leader.domain.planning.link_codecs import codec_notes, plan_codecs
from swarm_leader.domain.planning.plan import Forecast, Plan, ServeDefaults
from swarm_leader.domain.planning.prediction import (
    predict_first_token_ms,
    predict_links_ms,
    predict_stage_ms,
    predict_tokens_per_s,
    read_speed,
)
from swarm_leader.domain.planning.refusals import who_lack
from swarm_leader.domain.planning.routes import plan_routes
from swarm_leader.domain.planning.split import RingBudget, cut_layers, is_fitting, largest_kv_tokens, run_needs
from swarm_leader.domain.planning.wanted import Wanted, prefill_chunk_tokens
from swarm_leader.domain.planning.weight_form import form_of, storage_notes
from swarm_leader.domain.records import StageRecord

# A cut by speed is taken from this on: below it is within what a measurement of the same machine varies by.
CUT_GAIN = 1.01


def place_any_order(wanted: Wanted, ring: Sequence[FellowFacts]) -> Plan | None:
    """Roomiest first; if that does not fit, the two roomiest at the ends, which hold embeddings and head as well.

    Where the cuts are given, the roomiest takes the stage that needs most.
    """
    starts = wanted.layer_starts(len(ring))
    if starts:
        ring = _match_to_stages(wanted, ring, starts)
    placed = place(wanted, ring)
    if placed is None and len(ring) > 2 and not starts:
        placed = place(wanted, [ring[0], *ring[2:], ring[1]])
    return placed


def place(wanted: Wanted, ring: Sequence[FellowFacts]) -> Plan | None:
    """Cut the model over this very ring. None when it does not fit even with one session of the longest context."""
    form = form_of(wanted, ring)
    cost = cost_of(wanted.manifest, form, wanted.adapter_costs(form.storage_dtype), prefill_chunk_tokens(ring))
    notes: list[str] = []
    sizing = _size_sessions(cost, ring, least_budget(wanted, ring), wanted.defaults, notes)
    cuts = cut_layers(cost, sizing) if sizing else None
    if sizing is None or cuts is None:
        return None
    layout = _Layout(wanted, tuple(ring), form, cost, sizing, tuple(notes))
    placed = layout.plan(cuts)
    speeds = [read_speed(fellow) for fellow in ring]
    known = tuple(speed for speed in speeds if speed)
    if placed.predicted_tokens_per_s is None or len(known) < len(ring) or len(set(known)) == 1 or sizing.layer_starts:
        return placed
    by_speed = cut_layers(cost, replace(sizing, speeds=known))
    if by_speed is None or by_speed == cuts:
        return placed
    faster = layout.plan(by_speed)
    gained = (faster.predicted_tokens_per_s or 0.0) > CUT_GAIN * placed.predicted_tokens_per_s
    return faster if gained else placed


@dataclass(frozen=True)
class _Layout:
    """All that decides a plan but where the layers are cut."""

    wanted: Wanted
    ring: tuple[FellowFacts, ...]
    form: WeightForm
    cost: ModelCost
    sizing: RingBudget
    notes: tuple[str, ...]

    def plan(self, cuts: Sequence[LayerRange]) -> Plan:
        """The plan with these cuts."""
        wanted, ring, form = self.wanted, self.ring, self.form
        stages, link_notes = self._stages(cuts)
        hidden = wanted.manifest.hidden_size
        links_ms = predict_links_ms(ring, stages, hidden, form.dtype)
        batch_max, batch_notes = plan_batch_max(ring, wanted.defaults.batch_max)
        return Plan(
            stages=stages,
            transport=wanted.request.transport,
            dtype=form.dtype,
            context_tokens=wanted.context_tokens,
            kv_tokens=self.sizing.kv_tokens,
            in_flight_max=self.sizing.in_flight,
            notes=(*storage_notes(form, ring), *self.notes, *link_notes, *batch_notes),
            batch_max=batch_max,
            quantization=form.quantization,
            storage_dtype=form.storage_dtype,
            adapters=wanted.adapter_refs(form.storage_dtype),
            codec=wanted.request.codec,
            predicted_tokens_per_s=predict_tokens_per_s(stages, links_ms),
            forecast=Forecast(
                fellow_ids=tuple(fellow.fellow_id for fellow in ring),
                link_ms=links_ms if all(stage.predicted_ms is not None for stage in stages) else (),
                first_token_ms=predict_first_token_ms(self.cost, ring, stages, hidden, form.dtype),
            ),
        )

    def _stages(self, cuts: Sequence[LayerRange]) -> tuple[tuple[StageRecord, ...], tuple[str, ...]]:
        """The stages with their links, and what to know of those, in words."""
        asked, split = self.wanted.request.codec, self.wanted.manifest.split
        routes, route_notes = plan_routes(self.ring, self.wanted.request.transport)
        codecs = plan_codecs(asked, split, cuts)
        stages = tuple(
            replace(
                _stage(self.cost, self.sizing, index, fellow, layers),
                route=routes[index],
                codec_in=codecs[index].codec_in,
                codec_out=codecs[index].codec_out,
                inner_codecs=codecs[index].inner,
            )
            for index, (fellow, layers) in enumerate(zip(self.ring, cuts, strict=True))
        )
        return stages, (*route_notes, *codec_notes(asked, split, cuts))


def least_budget(wanted: Wanted, ring: Sequence[FellowFacts]) -> RingBudget:
    """The memory of a ring, and the least that is worth serving: one session of the longest context."""
    rooms = tuple(fellow.room for fellow in ring)
    on_processor = tuple(any(device.is_processor for device in fellow.devices) for fellow in ring)
    starts = wanted.layer_starts(len(ring))
    return RingBudget(rooms, wanted.context_tokens, wanted.context_tokens, 1, starts, on_processor)


def spread_stage(cost: ModelCost, budget: RingBudget, stage: int, layers: LayerRange) -> list[DeviceRun]:
    """Which layers of a stage go on which device of its room; it must fit. Positions stand in for device indices."""
    runs = spread(run_needs(cost, budget), layers.layer_start, layers.layer_stop, budget.rooms[stage])
    assert runs is not None, (layers, budget)
    held = [(position, LayerRange(start, stop, cost.layer_count)) for position, start, stop in runs]
    return [
        DeviceRun(
            device_index=position,
            layer_start=run.layer_start,
            layer_stop=run.layer_stop,
            weight_bytes=cost.weight_bytes(run),
            kv_bytes=cost.kv_bytes(run, budget.kv_tokens),
            working_bytes=cost.working_bytes(run.is_last, budget.context_tokens, budget.in_flight),
            free_bytes=budget.rooms[stage][position],
        )
        for position, run in held
    ]


def _stage(cost: ModelCost, budget: RingBudget, index: int, fellow: FellowFacts, layers: LayerRange) -> StageRecord:
    """A stage with the sum of what it takes on all its devices."""
    runs = spread_stage(cost, budget, index, layers)
    indices = [device.device_index for device in fellow.devices]  # empty when the fellow named no device
    devices = tuple(replace(run, device_index=indices[run.device_index]) for run in runs if indices)
    return StageRecord(
        stage_index=index,
        fellow_id=fellow.fellow_id,
        layer_start=layers.layer_start,
        layer_stop=layers.layer_stop,
        weight_bytes=sum(run.weight_bytes for run in runs),
        kv_bytes=sum(run.kv_bytes for run in runs),
        working_bytes=sum(run.working_bytes for run in runs),
        free_bytes=fellow.room_bytes,
        devices=devices,
        predicted_ms=predict_stage_ms(cost, fellow, devices),
    )


def _match_to_stages(wanted: Wanted, ring: Sequence[FellowFacts], starts: tuple[int, ...]) -> list[FellowFacts]:
    """The ring in an order in which a roomier fellow has the heavier stage. ring: roomiest first."""
    form = form_of(wanted, ring)
    cost = cost_of(wanted.manifest, form, wanted.adapter_costs(form.storage_dtype), prefill_chunk_tokens(ring))
    stops = (*starts[1:], cost.layer_count)
    needs = run_needs(cost, least_budget(wanted, ring))
    heaviest = sorted(range(len(starts)), key=lambda stage: (-needs(starts[stage], stops[stage]), stage))
    placed = dict(zip(heaviest, ring, strict=True))
    return [placed[stage] for stage in range(len(starts))]


def _size_sessions(
    cost: ModelCost, ring: Sequence[FellowFacts], least: RingBudget, defaults: ServeDefaults, notes: list[str]
) -> RingBudget | None:
    """Sessions at once and KV positions for all of them; None when not even `least` (one whole context) fits."""
    if not is_fitting(cost, least):
        return None
    by_tokens = [fellow for fellow in ring if fellow.capabilities.serve_kv_budget]
    in_flight = defaults.in_flight or (4 if len(by_tokens) == len(ring) else 2) * len(ring)
    one_by_one = [fellow.name for fellow in ring if fellow.capabilities.in_flight_max is None]
    if one_by_one and in_flight > 1:
        notes.append(f"{who_lack(one_by_one)} serve_concurrent: the ring runs one reply at a time")
    in_flight = min(in_flight, *(max(1, fellow.capabilities.in_flight_max or 1) for fellow in ring))
    if len(by_tokens) < len(ring):
        lacking = [fellow.name for fellow in ring if not fellow.capabilities.serve_kv_budget]
        notes.append(f"{who_lack(lacking)} serve_kv_budget: every reply in flight is planned with a whole context")
        return _whole_contexts(cost, least, in_flight)
    while in_flight > 1 and not is_fitting(cost, replace(least, in_flight=in_flight)):
        in_flight -= 1
    budget = replace(least, in_flight=in_flight)
    wanted_tokens = max(least.context_tokens, in_flight * defaults.typical_tokens)
    return replace(budget, kv_tokens=largest_kv_tokens(cost, budget, min(wanted_tokens, UNLIMITED)))


def _whole_contexts(cost: ModelCost, least: RingBudget, in_flight: int) -> RingBudget:
    """As many sessions as fit when each one must have room for the longest conversation."""
    for count in range(in_flight, 1, -1):
        budget = replace(least, in_flight=count, kv_tokens=count * least.context_tokens)
        if budget.kv_tokens <= UNLIMITED and is_fitting(cost, budget):
            return budget
    return least
