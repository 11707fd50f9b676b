"""What holds of every plan, however weights are held: over any fleet, for any model and any wish."""

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from swarm_core.errors import (
    BadRequest,
    CapabilityMissing,
    NoFellow,
    NotEnoughMemory,
    SwarmError,
    TooFewFellows,
)
from swarm_core.quantization import METHODS, NONE
from swarm_core.servable_parts import TrainingSplit
from swarm_core.slices import LayerRange
from swarm_leader.domain.holding import AdapterUse
from swarm_leader.domain.planning.budget import WeightForm, cost_of
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.planning.planner import plan

from tests.unit.leader.model_facts import MEGABYTE, make_adapter, make_cards, make_fellow, make_linear_manifest

REFUSALS = (BadRequest, CapabilityMissing, NoFellow, NotEnoughMemory, TooFewFellows)
ABLE = {
    "quantizations": ("nf4", "int8"),
    "codecs": ("int8", "int4"),
    "adapters_max": 4,
    "storage_dtypes": ("F16", "BF16"),
}
LACKS = ({}, {"quantizations": ()}, {"codecs": ("int8",)}, {"adapters_max": 0}, {"storage_dtypes": ()})
MORE = ({}, {"quantizations": ("nf4", "int4-fast")}, {"serve_one_stage": False})
free_bytes = st.none() | st.integers(300, 2_500).map(lambda megabytes: megabytes * MEGABYTE)


def examples(count):
    """So many examples; whether a drawn fleet can hold a drawn model is only known by planning, so many are dropped."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@st.composite
def fleets(draw):
    """Up to four fellows of one to three devices, some unable to do something."""
    fellows = []
    for index in range(draw(st.integers(1, 4))):
        able = {**ABLE, **draw(st.sampled_from(LACKS)), **draw(st.sampled_from(MORE))}
        dtype = draw(st.sampled_from(["F32", "BF16", "F16"]))
        cards = draw(st.lists(free_bytes, max_size=3))
        name = f"f{index}"
        made = (
            make_cards(name, *cards, dtype=dtype, **able)
            if cards
            else make_fellow(name, draw(free_bytes), dtype, **able)
        )
        fellows.append(made)
    return fellows


@st.composite
def splits(draw, layer_count):
    """Where training cut a model of several layers."""
    starts = draw(st.lists(st.integers(1, layer_count - 1), min_size=1, max_size=3, unique=True).map(sorted))
    codecs = draw(st.lists(st.sampled_from(["", "int8", "int4"]), min_size=len(starts), max_size=len(starts)))
    return TrainingSplit((0, *starts), draw(st.booleans()), tuple(codecs))


@st.composite
def models(draw, is_trained=None):
    """Models of up to half a GB. is_trained: None leaves it open."""
    layer_count = draw(st.integers(2, 8))
    manifest = make_linear_manifest(
        layer_count=layer_count,
        outputs=draw(st.integers(1, 4)) * 1024,
        inputs=4096,
        dtype=draw(st.sampled_from(["F32", "BF16", "F16"])),
        tied=draw(st.booleans()),
    )
    cut = draw(st.booleans()) if is_trained is None else is_trained
    return replace(manifest, split=draw(splits(layer_count))) if cut else manifest


requests = st.builds(
    PlanRequest,
    num_stages=st.integers(0, 4),
    context_tokens=st.sampled_from([0, 256]),
    quantization=st.sampled_from(["", *METHODS]),
    codec=st.sampled_from(["", "none", "int8"]),
)
adapter_counts = st.integers(0, 2)
roomy = st.lists(st.integers(600, 4_000).map(lambda megabytes: megabytes * MEGABYTE), min_size=4, max_size=6)
roomy_fleets = roomy.map(lambda frees: [make_cards(f"f{index}", free, **ABLE) for index, free in enumerate(frees)])


def plan_with(manifest, fellows, request, adapter_count=0):
    """A plan with this many adapters beside the weights."""
    return plan(manifest, fellows, request, adapters=[make_adapter(f"a{n}", manifest) for n in range(adapter_count)])


def outcome(manifest, fellows, request, adapter_count=0):
    """The plan, or the refusal."""
    try:
        return plan_with(manifest, fellows, request, adapter_count)
    except SwarmError as refusal:
        return refusal


@examples(250)
@given(models(), fleets(), requests, adapter_counts)
def test_a_plan_fits_every_device_and_holds_every_layer_once(manifest, fellows, request, adapter_count):
    placed = outcome(manifest, fellows, request, adapter_count)
    assume(not isinstance(placed, SwarmError))
    by_id = {fellow.fellow_id: fellow for fellow in fellows}

    layers = [layer for stage in placed.stages for layer in range(stage.layer_start, stage.layer_stop)]
    assert layers == list(range(manifest.layer_count))
    assert len({stage.fellow_id for stage in placed.stages}) == len(placed.stages)
    assert request.num_stages in (0, len(placed.stages))
    for stage in placed.stages:
        fellow = by_id[stage.fellow_id]
        needed = stage.weight_bytes + stage.kv_bytes + stage.working_bytes
        if not fellow.devices:
            assert fellow.free_bytes is None or needed <= fellow.free_bytes
            continue
        on_devices = [layer for run in stage.devices for layer in range(run.layer_start, run.layer_stop)]
        assert on_devices == list(range(stage.layer_start, stage.layer_stop))
        assert sum(run.needed_bytes for run in stage.devices) == needed
        free = {device.device_index: device.free_bytes for device in fellow.devices}
        assert all(
            free[run.device_index] is None or run.needed_bytes <= free[run.device_index] for run in stage.devices
        )


@examples(100)
@given(models(), fleets(), requests, st.randoms(use_true_random=False))
def test_the_order_of_the_fellows_changes_nothing(manifest, fellows, request, random):
    shuffled = list(fellows)
    random.shuffle(shuffled)

    first, second = outcome(manifest, fellows, request), outcome(manifest, shuffled, request)

    assert str(first) == str(second)


@examples(100)
@given(models(), fleets(), requests, adapter_counts)
def test_every_refusal_is_one_that_is_documented_and_says_why(manifest, fellows, request, adapter_count):
    refusal = outcome(manifest, fellows, request, adapter_count)
    assume(isinstance(refusal, SwarmError))

    assert type(refusal) in REFUSALS
    if isinstance(refusal, NotEnoughMemory):
        assert "weights" in refusal.message
        assert int(refusal.facts["needed_bytes"]) > 0


@examples(100)
@given(models(is_trained=True), roomy_fleets, requests)
def test_a_trained_model_over_its_own_stages_is_cut_where_it_was_trained(manifest, fellows, request):
    placed = outcome(manifest, fellows, replace(request, num_stages=manifest.split.stage_count))
    assume(not isinstance(placed, SwarmError))

    assert tuple(stage.layer_start for stage in placed.stages) == manifest.split.layer_starts
    assert all(not stage.inner_codecs for stage in placed.stages)
    if not request.codec:
        assert tuple(stage.codec_out for stage in placed.stages[:-1]) == manifest.split.codecs
    assert all(one.codec_out == other.codec_in for one, other in zip(placed.stages, placed.stages[1:], strict=False))


@examples(100)
@given(models(is_trained=True), roomy_fleets, requests)
def test_every_trained_boundary_is_either_on_a_link_or_inside_one_stage(manifest, fellows, request):
    placed = outcome(manifest, fellows, request)
    assume(not isinstance(placed, SwarmError))

    cuts = {stage.layer_start for stage in placed.stages}
    inside = {one.layer: one.codec for stage in placed.stages for one in stage.inner_codecs}
    trained = {layer: codec for layer in manifest.split.layer_starts if (codec := manifest.split.codec_before(layer))}
    assert inside == {layer: codec for layer, codec in trained.items() if layer not in cuts}


@examples(100)
@given(models(), st.sampled_from(METHODS), st.sampled_from(["F32", "F16"]), st.data())
def test_a_quantised_stage_never_needs_more_than_one_at_full_precision(manifest, method, dtype, data):
    start = data.draw(st.integers(0, manifest.layer_count - 1))
    layers = LayerRange(start, data.draw(st.integers(start + 1, manifest.layer_count)), manifest.layer_count)

    held = cost_of(manifest, WeightForm(dtype, method)).weight_bytes(layers)

    assert held <= cost_of(manifest, WeightForm(dtype, NONE)).weight_bytes(layers)


@examples(80)
@given(models(is_trained=False), fleets(), requests)
def test_whatever_fits_at_full_precision_fits_quantised_where_every_fellow_can(manifest, fellows, request):
    can = {"quantizations": METHODS, "storage_dtypes": ()}  # weights stored in half may fit fewer fellows instead
    able = [replace(one, capabilities=replace(one.capabilities, **can)) for one in fellows]
    full = outcome(manifest, able, replace(request, quantization=NONE))
    assume(not isinstance(full, SwarmError))

    quantised = outcome(manifest, able, replace(request, quantization="nf4"))

    assert quantised.quantization == "nf4"
    assert len(quantised.stages) <= len(full.stages)


@examples(80)
@given(models(), fleets(), requests)
def test_an_adapter_alone_is_merged_at_full_precision_and_beside_coarser_weights(manifest, fellows, request):
    try:
        placed = plan(manifest, fellows, request, adapters=[make_adapter("poet", manifest, is_alone=True)])
    except SwarmError:
        assume(False)

    is_exact = placed.quantization == NONE and not placed.storage_dtype
    merges = is_exact or placed.quantization == "int4-fast"
    assert [one.use for one in placed.adapters] == [AdapterUse.MERGED if merges else AdapterUse.ALWAYS]
