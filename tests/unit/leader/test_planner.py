"""Planning: what fits, what is refused, and with which words and numbers."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from swarm_core.errors import (
    BadRequest,
    CapabilityMissing,
    Conflict,
    NoFellow,
    NotEnoughMemory,
    SwarmError,
    TooFewFellows,
)
from swarm_core.manifest import DTYPE_BYTES
from swarm_core.slices import LayerRange, slice_tensors
from swarm_leader.domain.capabilities import Serve, WireRange
from swarm_leader.domain.planning.budget import HIDDEN_BUFFERS
from swarm_leader.domain.planning.planner import PlanRequest, ServeDefaults, plan
from swarm_leader.domain.records import Route, Transport

from tests.unit.leader.model_facts import GIGABYTE, MEGABYTE, make_fellow, make_manifest

fellow_memory = st.one_of(st.none(), st.integers(0, 3 * GIGABYTE))


LACKS = (
    {},
    {"stage_count_max": None},
    {"in_flight_max": None},
    {"in_flight_max": 3},
    {"direct_link": False},
    {"serve_rewire": False},
    {"serve_kv_budget": False},
    {"serve_one_stage": False},
)


@st.composite
def fleets(draw):
    """Up to five fellows, some unable to do something."""
    fellows = []
    for index in range(draw(st.integers(1, 5))):
        lack = draw(st.just({}) | st.sampled_from(LACKS))
        dtype = draw(st.sampled_from(["F32", "BF16", "F16"]))
        fellows.append(make_fellow(f"f{index}", draw(fellow_memory), dtype, **lack))
    return fellows


@st.composite
def models(draw):
    """Models from a few MB to some GB."""
    return make_manifest(
        layer_count=draw(st.integers(1, 12)),
        hidden_size=draw(st.sampled_from([64, 256])),
        tied=draw(st.booleans()),
        dtype=draw(st.sampled_from(["F32", "BF16", "F16"])),
        context_tokens_max=draw(st.sampled_from([0, 512, 4096])),
        layer_elements=draw(st.integers(1, 60)) * MEGABYTE,
    )


requests = st.builds(
    PlanRequest,
    num_stages=st.integers(0, 6),
    transport=st.sampled_from(list(Transport)),
    context_tokens=st.sampled_from([0, 256, 2048]),
)


@settings(max_examples=150, deadline=None)
@given(models(), fleets(), requests)
def test_a_plan_fits_every_fellow_and_holds_every_layer_once(manifest, fellows, request):
    try:
        placed = plan(manifest, fellows, request)
    except SwarmError:
        assume(False)

    by_id = {fellow.fellow_id: fellow for fellow in fellows}
    layers = [layer for stage in placed.stages for layer in range(stage.layer_start, stage.layer_stop)]
    assert layers == list(range(manifest.layer_count))
    assert all(stage.layer_stop > stage.layer_start for stage in placed.stages)
    assert len({stage.fellow_id for stage in placed.stages}) == len(placed.stages)
    assert request.num_stages in (0, len(placed.stages))
    for stage in placed.stages:
        free = by_id[stage.fellow_id].free_bytes
        assert free is None or stage.weight_bytes + stage.kv_bytes + stage.working_bytes <= free
    assert placed.kv_tokens >= placed.context_tokens
    assert placed.in_flight_max >= 1


@settings(max_examples=60, deadline=None)
@given(models(), fleets(), requests, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_changes_nothing(manifest, fellows, request, random):
    shuffled = list(fellows)
    random.shuffle(shuffled)

    assert outcome(manifest, shuffled, request) == outcome(manifest, fellows, request)


@settings(max_examples=100, deadline=None)
@given(models(), fleets(), requests)
def test_a_refusal_carries_its_numbers(manifest, fellows, request):
    try:
        plan(manifest, fellows, request)
        assume(False)
    except NotEnoughMemory as refusal:
        assert int(refusal.facts["needed_bytes"]) > 0
        assert int(refusal.facts["available_bytes"]) >= 0
        assert "GB" in refusal.message
    except TooFewFellows as refusal:
        assert int(refusal.facts["needed"]) > int(refusal.facts["available"])
    except CapabilityMissing as refusal:
        assert all(f"fellow {name} lacks" in refusal.message for name in refusal.facts["fellow"].split(", "))
        assert refusal.facts["capability"] in refusal.message
    except BadRequest as refusal:
        assert int(refusal.facts["num_stages"]) > int(refusal.facts["layers"]) == manifest.layer_count


def outcome(manifest, fellows, request):
    """The plan, or the refusal in words."""
    try:
        return plan(manifest, fellows, request)
    except SwarmError as refusal:
        return type(refusal), refusal.message, refusal.facts


def test_a_stage_weighs_what_its_tensors_weigh_in_the_serving_dtype():
    """Tied embeddings count on the first and on the last stage."""
    manifest = make_manifest(layer_count=5, dtype="BF16")

    placed = plan(manifest, [make_fellow("a"), make_fellow("b")], PlanRequest(num_stages=2))

    assert placed.dtype == "F32"
    for stage in placed.stages:
        names = slice_tensors(manifest, LayerRange(stage.layer_start, stage.layer_stop, 5))
        elements = sum(manifest.tensors[name].element_count for name in names)
        assert stage.weight_bytes == elements * DTYPE_BYTES["F32"]


def test_layers_are_cut_by_free_memory():
    manifest = make_manifest(layer_count=12, layer_elements=20 * MEGABYTE, vocabulary_size=10)

    placed = plan(manifest, [make_fellow("big", 6 * GIGABYTE), make_fellow("small", 2 * GIGABYTE)], PlanRequest(2))

    counts = [stage.layer_stop - stage.layer_start for stage in placed.stages]
    assert [stage.fellow_id for stage in placed.stages] == ["id-big", "id-small"]
    assert counts[0] >= 2 * counts[1]


def test_equal_fellows_get_equal_shares():
    manifest = make_manifest(layer_count=30, vocabulary_size=10)
    fellows = [make_fellow(name) for name in "abcd"]

    placed = plan(manifest, fellows, PlanRequest(num_stages=4))

    assert sorted(stage.layer_stop - stage.layer_start for stage in placed.stages) == [7, 7, 8, 8]


@pytest.mark.parametrize("stage_count", [2, 3, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_equal_fellows_read_equally_much_for_a_token(stage_count, tied):
    """The last stage reads its head for every token, the first one row of its embeddings: as many layers each would
    leave the first one idle for a third of the time.
    """
    manifest = make_manifest(layer_count=30, hidden_size=576, vocabulary_size=49_152, tied=tied)
    layer, head = 12 * 576**2, 49_152 * 576

    placed = plan(manifest, [make_fellow(name) for name in "abcd"], PlanRequest(num_stages=stage_count))

    layers = [stage.layer_stop - stage.layer_start for stage in placed.stages]
    read = [count * layer for count in layers[:-1]] + [layers[-1] * layer + head]
    assert max(read) - min(read) <= 2 * layer
    assert layers[-1] < min(layers[:-1])


def test_memory_stays_the_limit_of_what_a_stage_is_given():
    """Reading equally much would give the first stage more layers than fit beside the embeddings."""
    manifest = make_manifest(layer_count=10, hidden_size=576, vocabulary_size=49_152, layer_elements=25 * MEGABYTE)
    roomy = plan(manifest, [make_fellow(name) for name in "ab"], PlanRequest(num_stages=2)).stages
    first_bytes = roomy[0].weight_bytes + roomy[0].kv_bytes + roomy[0].working_bytes
    fellows = [make_fellow("a", first_bytes - MEGABYTE), make_fellow("b", 4 * first_bytes)]

    placed = plan(manifest, fellows, PlanRequest(fellow_ids=("id-a", "id-b")))

    assert placed.stages[0].layer_stop < roomy[0].layer_stop
    assert placed.stages[0].layer_stop > 0


def test_without_a_count_as_few_stages_as_fit_are_used():
    manifest = make_manifest(layer_count=10, layer_elements=50 * MEGABYTE)  # 2 GB in float32
    fellows = [make_fellow(name, 1_200 * MEGABYTE) for name in "abcd"]

    assert len(plan(manifest, fellows, PlanRequest()).stages) == 3
    assert len(plan(manifest, [make_fellow("huge"), *fellows], PlanRequest()).stages) == 1


def test_named_fellows_keep_their_order():
    fellows = [make_fellow("a", 2 * GIGABYTE), make_fellow("b", 8 * GIGABYTE), make_fellow("c", 4 * GIGABYTE)]

    placed = plan(make_manifest(), fellows, PlanRequest(fellow_ids=("id-c", "id-a")))

    assert [stage.fellow_id for stage in placed.stages] == ["id-c", "id-a"]


def test_no_fellow_at_all_is_refused():
    with pytest.raises(NoFellow, match="swarm-fellow --leader"):
        plan(make_manifest(), [], PlanRequest())


def test_a_fellow_that_does_not_serve_is_never_chosen_and_named_when_asked_for():
    other = make_fellow("logs", serve=None)

    with pytest.raises(NoFellow, match="logs"):
        plan(make_manifest(), [other], PlanRequest())
    with pytest.raises(CapabilityMissing, match="logs lacks serve"):
        plan(make_manifest(), [other, make_fellow("a")], PlanRequest(fellow_ids=("id-logs", "id-a")))
    placed = plan(make_manifest(), [other, make_fellow("a", MEGABYTE * 900)], PlanRequest())
    assert placed.stages[0].fellow_id == "id-a"


def test_too_few_fellows_are_counted_and_named():
    with pytest.raises(TooFewFellows, match="3 stages need 3 fellows, 2 are connected: attic, kitchen") as refused:
        plan(make_manifest(), [make_fellow("kitchen"), make_fellow("attic")], PlanRequest(num_stages=3))

    assert refused.value.facts == {"needed": "3", "available": "2", "names": "attic, kitchen"}


def test_too_little_memory_names_each_fellow_and_the_need():
    manifest = make_manifest(layer_count=4, layer_elements=250 * MEGABYTE)
    fellows = [make_fellow("kitchen", GIGABYTE), make_fellow("attic", 2 * GIGABYTE)]

    with pytest.raises(
        NotEnoughMemory, match=r"over 2 stages needs 4\.\d\d GB.*attic 2\.00 GB, kitchen 1\.00 GB"
    ) as refused:
        plan(manifest, fellows, PlanRequest())

    assert int(refused.value.facts["available_bytes"]) == 3 * GIGABYTE
    assert int(refused.value.facts["needed_bytes"]) > 4 * GIGABYTE


def test_unknown_memory_is_not_zero():
    manifest = make_manifest(vocabulary_size=10)
    placed = plan(manifest, [make_fellow("a", None), make_fellow("b", None)], PlanRequest(num_stages=2))

    assert [stage.free_bytes for stage in placed.stages] == [None, None]
    assert [stage.layer_stop - stage.layer_start for stage in placed.stages] == [2, 2]


def test_a_long_ring_refuses_and_names_a_fellow_that_cannot_be_in_one():
    fellows = [make_fellow("a"), make_fellow("b"), make_fellow("old", stage_count_max=None)]

    with pytest.raises(CapabilityMissing, match="fellow old lacks serve_n_stage") as refused:
        plan(make_manifest(), fellows, PlanRequest(num_stages=3))
    assert refused.value.facts["fellow"] == "old"
    assert refused.value.facts["capability"] == "serve_n_stage"

    placed = plan(make_manifest(), [*fellows, make_fellow("c")], PlanRequest(num_stages=3))
    assert "id-old" not in {stage.fellow_id for stage in placed.stages}


def test_one_stage_needs_a_fellow_that_serves_whole_models():
    whole = make_fellow("half", serve_one_stage=False)

    with pytest.raises(CapabilityMissing, match="half lacks serve_one_stage"):
        plan(make_manifest(), [whole], PlanRequest(num_stages=1))
    with pytest.raises(CapabilityMissing, match="half lacks serve_one_stage"):
        plan(make_manifest(), [whole], PlanRequest())


def test_a_model_type_nobody_builds_is_refused():
    fellow = make_fellow("a", serve=Serve(model_types=("llama", "qwen2")))

    with pytest.raises(CapabilityMissing, match="it builds llama, qwen2, not mamba"):
        plan(make_manifest(model_type="mamba"), [fellow], PlanRequest(num_stages=1))


def test_wire_versions_must_overlap():
    fellow = make_fellow("new", wire=WireRange(2, 3))

    with pytest.raises(CapabilityMissing, match=r"new lacks wire: it reads wire versions 2\.\.3, this ring speaks 1"):
        plan(make_manifest(), [fellow], PlanRequest(num_stages=1))


def test_p2p_needs_direct_links_on_every_fellow():
    fellows = [make_fellow("a"), make_fellow("b", direct_link=False)]

    with pytest.raises(CapabilityMissing, match="fellow b lacks direct_link"):
        plan(make_manifest(), fellows, PlanRequest(num_stages=2, transport=Transport.P2P))

    auto = plan(make_manifest(), fellows, PlanRequest(num_stages=2))
    assert [stage.route for stage in auto.stages] == [Route.RELAY, Route.RELAY]
    assert "b lacks direct_link" in auto.notes[0]


def test_more_stages_than_layers_is_the_callers_mistake():
    with pytest.raises(BadRequest, match="5 stages are more than the 4 layers of org/tiny"):
        plan(make_manifest(layer_count=4), [make_fellow("a")], PlanRequest(num_stages=5))


def test_a_fellow_named_twice_is_refused():
    with pytest.raises(BadRequest, match="named twice"):
        plan(make_manifest(), [make_fellow("a")], PlanRequest(fellow_ids=("id-a", "id-a")))


def test_a_fellow_without_concurrency_makes_the_ring_serve_one_at_a_time():
    fellows = [make_fellow("a"), make_fellow("b", in_flight_max=None)]

    placed = plan(make_manifest(), fellows, PlanRequest(num_stages=2))

    assert placed.in_flight_max == 1
    assert placed.notes == ("b lacks serve_concurrent: the ring runs one reply at a time",)


def test_replies_in_flight_are_four_per_stage_and_never_more_than_a_fellow_holds():
    fellows = [make_fellow("a"), make_fellow("b", in_flight_max=5)]

    assert plan(make_manifest(), [make_fellow("a")], PlanRequest()).in_flight_max == 4
    assert plan(make_manifest(), fellows, PlanRequest(num_stages=2)).in_flight_max == 5
    assert plan(make_manifest(), fellows, PlanRequest(2), ServeDefaults(in_flight=3)).in_flight_max == 3


def test_kv_is_sized_by_typical_chats_but_never_below_one_whole_context():
    manifest = make_manifest(context_tokens_max=0)

    few = plan(manifest, [make_fellow("a")], PlanRequest(), ServeDefaults(context_tokens=8192, typical_tokens=100))
    many = plan(manifest, [make_fellow("a")], PlanRequest(), ServeDefaults(context_tokens=512, typical_tokens=1024))

    assert few.kv_tokens == 8192
    assert many.kv_tokens == 4 * 1024


def test_kv_shrinks_to_what_fits():
    manifest = make_manifest(context_tokens_max=0)
    roomy = plan(manifest, [make_fellow("a")], PlanRequest(), ServeDefaults(context_tokens=512, typical_tokens=10**6))
    spare = roomy.stages[0].weight_bytes + roomy.stages[0].working_bytes + 5 * MEGABYTE

    tight = plan(
        manifest, [make_fellow("a", spare)], PlanRequest(), ServeDefaults(context_tokens=512, typical_tokens=10**6)
    )

    per_token = roomy.stages[0].kv_bytes // roomy.kv_tokens
    assert tight.kv_tokens == 5 * MEGABYTE // per_token


def test_a_fellow_without_a_token_budget_gets_whole_contexts():
    fellows = [make_fellow("a", serve_kv_budget=False)]

    placed = plan(make_manifest(context_tokens_max=0), fellows, PlanRequest(), ServeDefaults(context_tokens=1000))

    assert (placed.in_flight_max, placed.kv_tokens) == (2, 2000)
    assert "lacks serve_kv_budget" in placed.notes[0]


def test_the_context_is_never_longer_than_the_model_takes():
    placed = plan(make_manifest(context_tokens_max=2048), [make_fellow("a")], PlanRequest(context_tokens=100_000))

    assert placed.context_tokens == 2048
    assert placed.notes == ("context cut from 100,000 to 2,048 tokens, the most this model takes",)


def test_a_context_the_model_takes_and_the_usual_one_are_no_note():
    manifest, fellows = make_manifest(context_tokens_max=2048), [make_fellow("a")]

    assert plan(manifest, fellows, PlanRequest(context_tokens=2048)).notes == ()
    assert plan(manifest, fellows, PlanRequest(), ServeDefaults(context_tokens=4096)).notes == ()


@pytest.mark.parametrize(
    ("stored", "computed", "asked", "served"),
    [
        ("BF16", ["BF16", "F32"], "", "F32"),
        ("BF16", ["BF16", "BF16"], "", "BF16"),
        ("BF16", ["BF16", "F16"], "", "F16"),
        ("F32", ["BF16", "BF16"], "", "F32"),
        ("BF16", ["F32", "F32"], "F16", "F16"),
    ],
)
def test_one_dtype_serves_the_whole_ring(stored, computed, asked, served):
    fellows = [make_fellow(f"f{index}", dtype=dtype) for index, dtype in enumerate(computed)]

    placed = plan(make_manifest(dtype=stored), fellows, PlanRequest(num_stages=2), ServeDefaults(dtype=asked))

    assert placed.dtype == served


def test_every_fellow_that_runs_one_reply_at_a_time_is_named():
    fellows = [make_fellow(name, in_flight_max=limit) for name, limit in (("a", None), ("b", 8), ("c", None))]

    placed = plan(make_manifest(), fellows, PlanRequest(num_stages=3))

    assert placed.notes == ("a, c lack serve_concurrent: the ring runs one reply at a time",)
    assert placed.in_flight_max == 1


@pytest.mark.parametrize("named", [True, False])
def test_a_ring_that_shares_no_wire_version_names_both_fellows(named):
    fellows = [make_fellow("new", wire=WireRange(2, 3)), make_fellow("old")]
    request = PlanRequest(2, ("id-new", "id-old") if named else ())

    with pytest.raises(CapabilityMissing, match=r"new and old have no wire .* new reads 2\.\.3 and old reads 1\.\.1"):
        plan(make_manifest(), fellows, request)


def working_bytes(manifest, **serve):
    """What one stage's buffers are planned with."""
    fellow = make_fellow("a", serve=Serve(**serve))
    return plan(manifest, [fellow], PlanRequest(context_tokens=2048)).stages[0].working_bytes


def test_buffers_are_sized_by_the_pieces_the_first_fellow_sends_a_prompt_in():
    usual, long, whole = (working_bytes(make_manifest(), prefill_chunk_tokens=n) for n in (0, 512, 2**32 - 1))

    assert usual == working_bytes(make_manifest(), prefill_chunk_tokens=256)
    assert usual < long < whole == working_bytes(make_manifest(), prefill_chunk_tokens=2048)


def test_buffers_are_sized_by_the_heads_the_import_noted():
    manifest = make_manifest()  # four heads by its sizes
    noted = replace(manifest, extra={"attention_heads": 8})

    assert working_bytes(noted) - working_bytes(manifest) == 4 * 256 * 2048 * 4


def busy(name, free_bytes=8 * GIGABYTE):
    """A fellow all of whose places are taken by a load."""
    return replace(make_fellow(name, free_bytes), busy_with="org/first")


def test_a_fellow_that_loads_gets_no_other_model_while_another_is_free():
    placed = plan(make_manifest(), [busy("a"), make_fellow("b", GIGABYTE)], PlanRequest())

    assert [stage.fellow_id for stage in placed.stages] == ["id-b"]


@pytest.mark.parametrize("request_", [PlanRequest(), PlanRequest(2), PlanRequest(fellow_ids=("id-a",))])
def test_a_plan_that_needs_a_loading_fellow_conflicts_and_names_the_model(request_):
    fellows = [busy("a"), make_fellow("b", free_bytes=1)]
    fellows[1] = fellows[1] if request_.num_stages != 2 else make_fellow("b")

    with pytest.raises(Conflict, match="fellow a is loading org/first") as refused:
        plan(make_manifest(), fellows, request_)
    assert refused.value.facts == {"fellow": "a", "loading": "org/first"}


def test_what_no_wait_would_change_is_not_called_a_conflict():
    with pytest.raises(NotEnoughMemory):
        plan(make_manifest(), [busy("a", free_bytes=1)], PlanRequest())


def with_card(name, compute_capability, **changes):
    """A fellow whose stage runs on a card."""
    return replace(make_fellow(name, dtype="F16", **changes), compute_capability=compute_capability)


def batch_max(*fellows, asked=None):
    """The cap for a ring of these."""
    placed = plan(make_manifest(), fellows, PlanRequest(len(fellows)), ServeDefaults(batch_max=asked))
    return placed.batch_max, placed.notes


def test_one_card_older_than_ampere_caps_the_batch_of_the_whole_ring_and_is_named():
    capped, notes = batch_max(with_card("new", (8, 6)), with_card("old", (7, 5)), make_fellow("slow"))

    assert capped == 2
    assert notes == ("a step takes at most 2 replies: older than compute capability 8.0: old (7.5)",)


def test_splitting_rows_lifts_the_cap_when_every_fellow_of_the_ring_can():
    cards = [with_card(name, (6, 1), serve_4bit_rows=True) for name in ("a", "b")]

    assert batch_max(*cards)[0] == 4
    assert batch_max(cards[0], with_card("c", (8, 6)))[0] == 2


def test_new_cards_processors_and_cards_that_do_not_say_set_no_cap():
    assert batch_max(with_card("a", (8, 0)), with_card("b", (9, 0)), make_fellow("c")) == (0, ())


@pytest.mark.parametrize("asked", [0, 1, 7])
def test_the_operator_has_the_last_word_on_the_batch(asked):
    assert batch_max(with_card("old", (6, 1)), asked=asked) == (asked, ())


def test_many_replies_of_short_pieces_need_room_for_a_row_each():
    manifest = make_manifest(context_tokens_max=0, hidden_size=1024)
    fellow = make_fellow("a", in_flight_max=512, serve=Serve(prefill_chunk_tokens=16))

    few, many = (
        plan(manifest, [fellow], PlanRequest(context_tokens=64), ServeDefaults(in_flight=count)).stages[0].working_bytes
        for count in (16, 116)
    )

    assert many - few == 100 * (1024 * 4 * HIDDEN_BUFFERS + 1000 * 4)  # F32; and a row of logits each
