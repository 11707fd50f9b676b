"""How weights are held: quantised or what is fallen back to, in which type, with which adapters, coded how."""

from dataclasses import replace

import pytest
from swarm_core.errors import BadRequest, CapabilityMissing, NotEnoughMemory
from swarm_core.servable_parts import TrainingSplit
from swarm_leader.domain.device_facts import CARD, DeviceFacts
from swarm_leader.domain.holding import AdapterUse, InnerCodec
from swarm_leader.domain.planning.plan import PlanRequest
from swarm_leader.domain.planning.planner import plan

from tests.unit.leader.model_facts import (
    GIGABYTE,
    MEGABYTE,
    make_adapter,
    make_cards,
    make_fellow,
    make_linear_manifest,
    make_manifest,
)

QUANTISES = {"quantizations": ("nf4", "int8")}
BIG = {"outputs": 16_384, "inputs": 16_384}  # a layer of 268 million weights: 1.07 GB in F32, 151 MB in NF4


def quantised(fellows, quantization="nf4", manifest=None, **request):
    """A plan of a small model in this quantisation."""
    asked = PlanRequest(quantization=quantization, **request)
    return plan(manifest or make_linear_manifest(), fellows, asked)


# What is asked for, and what it falls back to.


def test_linear_layers_are_priced_by_their_format_and_all_else_at_full_precision():
    manifest = make_linear_manifest(layer_count=2, outputs=512, inputs=256, hidden_size=256)
    fellows = [make_fellow("a", dtype="BF16", **QUANTISES)]
    elements, others = 512 * 256, 2 * (2 * 256 + 1000 * 256 + 256)  # norms, tied embeddings, final norm in BF16

    sizes = {method: quantised(fellows, method, manifest).stages[0].weight_bytes for method in ("none", "nf4", "int8")}

    assert sizes["none"] == 2 * 2 * elements + others
    assert sizes["nf4"] == 2 * (elements // 2 + elements // 64 * 4) + others
    assert sizes["int8"] == 2 * (elements + 512 * 4) + others


def test_the_models_own_quantisation_is_used_unless_the_load_says_another():
    manifest = replace(make_linear_manifest(), quantization="int8")
    fellows = [make_fellow("a", **QUANTISES)]

    assert [plan(manifest, fellows, PlanRequest(quantization=said)).quantization for said in ("", "nf4", "none")] == [
        "int8",
        "nf4",
        "none",
    ]


def test_too_few_fellows_that_quantise_means_full_precision_and_a_note():
    placed = quantised([make_fellow("a", **QUANTISES), make_fellow("b")], num_stages=2)

    assert (placed.quantization, placed.quantization_asked) == ("none", "nf4")
    assert placed.notes[0] == "b lacks serve_quantized: held in full precision instead of nf4"


def test_a_fellow_that_quantises_is_chosen_before_a_roomier_one_that_does_not():
    placed = quantised([make_fellow("roomy", 16 * GIGABYTE), make_fellow("able", **QUANTISES)])

    assert (placed.quantization, placed.stages[0].fellow_id, placed.notes) == ("nf4", "id-able", ())


def test_full_precision_that_does_not_fit_either_is_refused_with_both_reasons():
    manifest = make_linear_manifest(layer_count=4, **BIG)

    with pytest.raises(NotEnoughMemory) as refused:
        quantised([make_fellow("old", 3 * GIGABYTE)], manifest=manifest, num_stages=1)

    words = refused.value.message
    assert words.startswith(
        "In nf4: 1 stages need 1 fellows that can, 0 can. fellow old lacks serve_quantized: it cannot "
    )
    assert "In full precision: org/tiny over 1 stage needs 4.6" in words
    assert refused.value.facts["quantization"] == "none"


def test_what_does_not_fit_quantised_is_not_tried_at_full_precision_when_every_fellow_quantises():
    manifest = make_linear_manifest(layer_count=8, **BIG)

    with pytest.raises(NotEnoughMemory) as refused:
        quantised([make_fellow("a", GIGABYTE, **QUANTISES)], manifest=manifest)

    assert "full precision" not in refused.value.message
    assert refused.value.facts["quantization"] == "nf4"


def test_fast_kernels_that_too_few_have_fall_back_to_nf4_and_then_to_full_precision():
    fast, slow, old = (
        make_fellow("fast", quantizations=("nf4", "int4-fast")),
        make_fellow("slow", **QUANTISES),
        make_fellow("old"),
    )

    alone = quantised([fast, slow], "int4-fast")
    both = quantised([fast, slow], "int4-fast", num_stages=2)
    all_three = quantised([fast, slow, old], "int4-fast", num_stages=3)

    assert (alone.quantization, alone.notes) == ("int4-fast", ())
    assert (both.quantization, both.notes) == ("nf4", ("slow lacks serve_int4_fast: held in nf4 instead of int4-fast",))
    assert all_three.quantization == "none"
    assert all_three.notes == (
        "old, slow lack serve_int4_fast: held in nf4 instead of int4-fast",
        "old lacks serve_quantized: held in full precision instead of nf4",
    )


# Types that weights are stored in.


def test_a_card_that_computes_in_float32_alone_stores_half_and_says_so():
    card = make_cards("gtx", 4 * GIGABYTE, dtype="F32", storage_dtypes=("F16", "BF16"))
    manifest = make_linear_manifest(dtype="F16")

    placed = plan(manifest, [card], PlanRequest())

    assert (placed.dtype, placed.storage_dtype) == ("F32", "F16")
    assert placed.notes == ("weights are held in F16 and computed in F32: the cards of gtx compute in F32 alone",)
    assert plan(manifest, [make_cards("old", 4 * GIGABYTE, dtype="F32")], PlanRequest()).storage_dtype == ""


def test_a_processor_stores_half_only_where_float32_does_not_fit():
    manifest = make_linear_manifest(layer_count=4, dtype="BF16", **BIG)
    fits, tight = (make_fellow("a", amount * GIGABYTE, storage_dtypes=("BF16",)) for amount in (6, 3))

    assert plan(manifest, [fits], PlanRequest()).storage_dtype == ""
    stored = plan(manifest, [tight], PlanRequest())
    assert (stored.dtype, stored.storage_dtype) == ("F32", "BF16")
    assert stored.notes == ("weights are held in BF16 and computed in F32: in F32 they would not fit",)
    with pytest.raises(NotEnoughMemory):
        plan(manifest, [replace(tight, capabilities=replace(tight.capabilities, storage_dtypes=()))], PlanRequest())


def test_a_model_stored_in_float32_is_never_rounded_to_fit():
    manifest = make_linear_manifest(layer_count=4, dtype="F32", **BIG)

    with pytest.raises(NotEnoughMemory):
        plan(manifest, [make_fellow("a", 3 * GIGABYTE, storage_dtypes=("F16", "BF16"))], PlanRequest())


# Several devices.


def test_a_stage_too_large_for_any_card_is_spread_over_all_of_them():
    manifest = make_linear_manifest(layer_count=6, dtype="F16", **BIG)  # 3.2 GB of layers in F16

    placed = plan(manifest, [make_cards("pc", 3 * GIGABYTE, 2 * GIGABYTE)], PlanRequest(num_stages=1))

    (stage,) = placed.stages
    assert [(run.device_index, run.layer_start, run.layer_stop) for run in stage.devices] == [(1, 0, 4), (2, 4, 6)]
    assert [run.free_bytes for run in stage.devices] == [3 * GIGABYTE, 2 * GIGABYTE]
    assert stage.free_bytes == 5 * GIGABYTE


def test_what_does_not_fit_the_cards_says_what_each_has_and_what_is_needed():
    manifest = make_linear_manifest(layer_count=6, dtype="F16", **BIG)

    with pytest.raises(NotEnoughMemory) as refused:
        plan(manifest, [make_cards("pc", 2 * GIGABYTE, GIGABYTE)], PlanRequest())

    assert "free: pc 3.00 GB (cuda 1 2.00 GB, cuda 2 1.00 GB)." in refused.value.message
    assert "Needed: pc 3.5" in refused.value.message
    assert "for layers 0 to 5 (weights 3.22 GB, KV 0.00 GB, working buffers 0.3" in refused.value.message


def test_the_oldest_type_among_the_cards_of_a_ring_is_computed_in():
    old, new = make_cards("old", 4 * GIGABYTE, dtype="F16"), make_cards("new", 4 * GIGABYTE, dtype="BF16")

    assert plan(make_linear_manifest(), [old, new], PlanRequest(num_stages=2)).dtype == "F16"


# Adapters.


def test_adapters_are_priced_in_float32_on_the_stage_of_their_layers():
    manifest = make_linear_manifest(layer_count=4, outputs=512, inputs=256)
    fellows = [make_fellow(name, dtype="BF16", adapters_max=2) for name in "ab"]
    adapters = [make_adapter(name, manifest, rank=8) for name in ("pirate", "poet")]

    bare = plan(manifest, fellows, PlanRequest(num_stages=2))
    placed = plan(manifest, fellows, PlanRequest(num_stages=2), adapters=adapters)

    for stage, without in zip(placed.stages, bare.stages, strict=True):
        layers = stage.layer_stop - stage.layer_start
        assert stage.weight_bytes - without.weight_bytes == 2 * layers * 8 * (512 + 256) * 4
    assert [(one.model_id, one.use) for one in placed.adapters] == [
        ("pirate", AdapterUse.CHOSEN),
        ("poet", AdapterUse.CHOSEN),
    ]


def test_an_adapter_that_is_the_model_takes_what_its_base_takes():
    """Its own files are a few MB; sized by them it would seem to fit anywhere."""
    manifest = make_linear_manifest(layer_count=4, **BIG)
    able = make_fellow("a", adapters_max=1, **QUANTISES)
    poet = [make_adapter("poet", manifest, is_alone=True)]

    merged = plan(manifest, [able], PlanRequest(), adapters=poet)
    beside = plan(manifest, [able], PlanRequest(quantization="nf4"), adapters=poet)

    assert [one.use for one in merged.adapters] == [AdapterUse.MERGED]
    assert merged.stages[0].weight_bytes == plan(manifest, [able], PlanRequest()).stages[0].weight_bytes
    assert [one.use for one in beside.adapters] == [AdapterUse.ALWAYS]
    with pytest.raises(NotEnoughMemory):
        plan(manifest, [replace(able, free_bytes=GIGABYTE)], PlanRequest(), adapters=poet)


def test_adapters_on_a_fellow_that_holds_none_or_fewer_are_refused_by_name():
    manifest = make_linear_manifest()
    adapters = [make_adapter(name, manifest) for name in ("pirate", "poet")]

    with pytest.raises(
        CapabilityMissing, match="fellow old lacks serve_adapters: it holds no adapters; asked for: pirate, poet"
    ):
        plan(manifest, [make_fellow("old")], PlanRequest(fellow_ids=("id-old",)), adapters=adapters)
    with pytest.raises(CapabilityMissing, match="it holds at most 1 adapters, not 2"):
        plan(manifest, [make_fellow("a", adapters_max=1)], PlanRequest(num_stages=1), adapters=adapters)


# Splits of training, and codes.

SPLIT = TrainingSplit((0, 1, 4), recorded=True, codecs=("int8", ""))
SPEAKS = {"codecs": ("int8", "int4")}


def trained(**changes):
    """A model of six layers that was trained over three stages."""
    return make_linear_manifest(layer_count=6, split=replace(SPLIT, **changes))


def three(**able):
    """Three fellows."""
    return [make_fellow(name, **{**SPEAKS, **able}) for name in "abc"]


def test_a_trained_model_is_served_over_the_stages_of_its_training_unless_told_otherwise():
    placed = plan(trained(), three(), PlanRequest())

    assert [(stage.layer_start, stage.codec_in, stage.codec_out) for stage in placed.stages] == [
        (0, "", "int8"),
        (1, "int8", ""),
        (4, "", ""),
    ]
    assert placed.notes == ()


def test_at_another_count_it_is_cut_anywhere_and_its_boundaries_are_applied_in_place():
    whole = plan(trained(), three(), PlanRequest(num_stages=1))

    assert whole.stages[0].inner_codecs == (InnerCodec(1, "int8"),)
    two = plan(trained(codecs=("int8", "int4")), three(), PlanRequest(num_stages=2))
    cut = two.stages[1].layer_start
    assert cut not in (1, 4)
    assert [stage.inner_codecs for stage in two.stages] == [(InnerCodec(1, "int8"),), (InnerCodec(4, "int4"),)]
    assert [(stage.codec_in, stage.codec_out) for stage in two.stages] == [("", ""), ("", "")]


def test_fewer_fellows_than_stages_of_training_serve_it_over_as_few_as_fit_with_a_note():
    placed = plan(trained(), three()[:2], PlanRequest())

    assert len(placed.stages) == 1
    assert placed.notes[0] == "served over 1 stage: the 3 it was trained over are not possible"


def test_without_a_recorded_split_another_count_is_refused_with_both_numbers():
    with pytest.raises(BadRequest, match=r"trained over 3 stages .* not over 2") as refused:
        plan(trained(recorded=False), three(), PlanRequest(num_stages=2))
    assert (refused.value.facts["num_stages"], refused.value.facts["trained_stages"]) == ("2", "3")

    assert len(plan(trained(recorded=False), three(), PlanRequest()).stages) == 3
    with pytest.raises(BadRequest, match="not over 1"):
        plan(trained(recorded=False), three(), PlanRequest(fellow_ids=("id-a",)))


def test_a_roomier_fellow_takes_a_heavier_shard():
    manifest = make_linear_manifest(layer_count=6, split=TrainingSplit((0, 1), recorded=True), **BIG)
    fellows = [make_fellow("small", 2 * GIGABYTE), make_fellow("large", 7 * GIGABYTE)]

    placed = plan(manifest, fellows, PlanRequest())

    assert [stage.fellow_id for stage in placed.stages] == ["id-small", "id-large"]


def test_a_codec_asked_for_is_used_on_every_link_and_never_on_tokens():
    placed = plan(make_linear_manifest(), three(), PlanRequest(num_stages=3, codec="int4"))

    assert [(stage.codec_in, stage.codec_out) for stage in placed.stages] == [
        ("", "int4"),
        ("int4", "int4"),
        ("int4", ""),
    ]
    assert plan(make_linear_manifest(), three(), PlanRequest(num_stages=1, codec="int4")).stages[0].codec_out == ""


def test_a_codec_that_codes_nothing_or_ruins_the_model_is_noted():
    one, untrained, gentle = (
        plan(make_linear_manifest(), three(), PlanRequest(num_stages=count, codec=codec)).notes
        for count, codec in ((1, "int8"), (2, "int4"), (2, "int8"))
    )
    as_trained = plan(trained(codecs=("int4", "int4")), three(), PlanRequest(num_stages=3, codec="int4")).notes

    assert "one stage has no link: int8 codes nothing" in one
    assert any(note.startswith("int4 where training had none changes most") for note in untrained)
    assert not [note for note in (*gentle, *as_trained) if "changes most" in note or "codes nothing" in note]


def test_asking_for_no_codec_leaves_links_uncoded_and_boundaries_inside_stages_as_trained():
    own = plan(trained(), three(codecs=()), PlanRequest(num_stages=3, codec="none"))
    whole = plan(trained(), three(), PlanRequest(num_stages=1, codec="none"))

    assert {stage.codec_out for stage in own.stages} == {""}
    assert whole.stages[0].inner_codecs == (InnerCodec(1, "int8"),)


@pytest.mark.parametrize(("manifest", "codec"), [(make_linear_manifest(), "int4"), (trained(), "")])
def test_a_fellow_that_does_not_speak_a_needed_codec_is_named(manifest, codec):
    fellows = [*three()[:2], make_fellow("old")]

    with pytest.raises(CapabilityMissing, match="fellow old lacks serve_codec: it does not speak int") as refused:
        plan(manifest, fellows, PlanRequest(num_stages=3, codec=codec))
    assert (refused.value.facts["fellow"], refused.value.facts["capability"]) == ("old", "serve_codec")


# Prediction.


def measured(name, bytes_per_s, kind="cpu", **changes):
    """A fellow whose one device, the processor unless said otherwise, reads this fast."""
    fellow = make_fellow(name, **changes)
    return replace(fellow, devices=(DeviceFacts(0, kind, fellow.free_bytes, "F32", bytes_per_s),))


def test_a_token_takes_what_its_weights_take_to_read_and_a_hop_for_each_link():
    manifest = make_manifest(layer_count=4, layer_elements=50 * MEGABYTE, vocabulary_size=10)  # 200 MB a layer in F32

    whole = plan(manifest, [measured("a", 10e9)], PlanRequest(num_stages=1))
    two = plan(manifest, [measured("a", 10e9), measured("b", 5e9)], PlanRequest(fellow_ids=("id-a", "id-b")))

    assert whole.predicted_tokens_per_s == pytest.approx(1000 / 80, rel=0.001)
    assert [stage.predicted_ms for stage in two.stages] == pytest.approx([60, 40], rel=0.001)
    assert two.predicted_tokens_per_s == pytest.approx(1000 / (100 + 2 * 1.03), rel=0.001)
    assert two.forecast.link_ms == pytest.approx((1.03, 1.03))


def test_a_speed_that_is_unknown_predicts_nothing():
    fellows = [measured("a", 10e9), measured("b", None)]

    placed = plan(make_manifest(), fellows, PlanRequest(num_stages=2))

    assert placed.predicted_tokens_per_s is None
    assert {stage.fellow_id: stage.predicted_ms is None for stage in placed.stages} == {"id-a": False, "id-b": True}


def test_a_card_reads_quantised_weights_faster_and_adapters_of_others_not_at_all():
    manifest = make_linear_manifest(layer_count=4, **BIG)
    fellow = measured("a", 10e9, CARD, adapters_max=2, **QUANTISES)
    adapters = [make_adapter("poet", manifest, rank=64)]

    full, small = (plan(manifest, [fellow], PlanRequest(quantization=said)) for said in ("none", "nf4"))
    beside = plan(manifest, [fellow], PlanRequest(quantization="nf4"), adapters=adapters)

    assert small.predicted_tokens_per_s == pytest.approx(full.predicted_tokens_per_s * 4 / 0.5625, rel=0.01)
    assert beside.predicted_tokens_per_s == small.predicted_tokens_per_s


def test_a_processor_is_slower_with_quantised_weights_and_predicted_so():
    manifest = make_linear_manifest(layer_count=4, **BIG)
    fellow = measured("a", 10e9, **QUANTISES)

    full, small = (plan(manifest, [fellow], PlanRequest(quantization=said)) for said in ("none", "nf4"))

    assert small.predicted_tokens_per_s == pytest.approx(full.predicted_tokens_per_s / 3.1, rel=0.01)


def test_processors_get_equal_shares_of_quantised_layers_although_the_head_is_not_quantised():
    """By bytes alone the first stage got 28 of SmolLM2's 30 layers in NF4, and was 13 times as slow as the second."""
    manifest = make_linear_manifest(30, outputs=6144, inputs=576, hidden_size=576, vocabulary_size=49_152)
    fellows = [measured(name, 10e9, **QUANTISES) for name in ("a", "b")]

    full, small = (plan(manifest, fellows, PlanRequest(2, quantization=said)) for said in ("none", "nf4"))

    assert [plan_.stages[0].layer_stop for plan_ in (full, small)] == [19, 16]


def test_a_stage_over_two_cards_takes_the_sum_of_both():
    fast = DeviceFacts(0, CARD, 2 * GIGABYTE, "F16", 400e9)
    slow = DeviceFacts(1, CARD, 2 * GIGABYTE, "F16", 100e9)
    pc = replace(make_cards("pc", 2 * GIGABYTE), devices=(fast, slow))
    manifest = make_manifest(layer_count=10, layer_elements=100 * MEGABYTE, vocabulary_size=10, dtype="F16")

    (stage,) = plan(manifest, [pc], PlanRequest()).stages

    layers = [run.layer_stop - run.layer_start for run in stage.devices]
    assert layers == [5, 5]
    assert stage.predicted_ms == pytest.approx(5 * 0.2 / 0.4 + 5 * 0.2 / 0.1, rel=0.001)
