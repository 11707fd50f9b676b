"""4-bit products by rows and in float32: what is chosen from times, and that what is chosen computes the same."""

from dataclasses import replace

import pytest
import structlog
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_core.errors import BadRequest
from swarm_core.slices import LayerRange
from swarm_stage.engine.budget import WORKING_BYTES
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.fourbit.float32 import SPARE_BYTES, Float32Rows, choose_float32_rows, is_float32_measured
from swarm_stage.model.fourbit.path import FourbitPath, PathedWeight, choose_path
from swarm_stage.model.fourbit.rows import RowSplits, asked_row_splits, choose_row_splits
from swarm_stage.model.holding import DeviceLayers, Holding
from swarm_stage.model.products.adapted_product import AdaptedProduct, OneByOneProduct
from swarm_stage.model.products.product_of import product_of
from swarm_stage.model.products.quantized_product import QuantizedProduct
from swarm_stage.model.quantized.nf4 import quantize_nf4
from swarm_stage.model.quantized.quantized_linear import Nf4Linear
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.serve.fourbit import choose_fourbit_paths, describe, measure_rows
from torch import nn

from tests.models import make_tiny_model, read_config, split_tensors

NF4 = Holding("F32", quantization="nf4")
# A GTX 1660 SUPER: the kernel for 4 rows and more is 4.5 times slower (specification, "4-bit matmuls of a few rows").
TURING_MS = {1: 8.0, 2: 8.1, 3: 8.3, 4: 37.0, 5: 37.2, 6: 37.5, 7: 37.8, 8: 38.0}
FLAT_MS = dict.fromkeys(range(1, 9), 2.0)
ROOMY = 8 * 2**30


def build(family, folder, holding: Holding = NF4) -> SliceModel:
    folder = make_tiny_model(family, folder)
    files = split_tensors(folder, folder / "tensors")
    return build_slice(read_config(folder), LayerRange(0, 4, 4), files, holding, lambda done, total: None)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


# rows


def test_a_card_that_is_slow_from_four_rows_on_splits_into_three():
    splits = choose_row_splits(TURING_MS)

    assert (splits.part_rows, splits.counts) == (3, (4, 5, 6, 7, 8))
    assert splits.parts(8) == [(0, 3), (3, 6), (6, 8)]
    assert str(splits) == "calls of more rows split into 3"


def test_a_card_as_fast_for_eight_rows_as_for_one_splits_nothing():
    assert choose_row_splits(FLAT_MS) == RowSplits()
    assert str(RowSplits()) == "no call is split"


def test_only_the_row_counts_that_gain_are_split():
    """Here 8 rows take another kernel again, which is fast."""
    splits = choose_row_splits({**TURING_MS, 8: 9.0})

    assert splits.counts == (4, 5, 6, 7)
    assert splits.parts(8) == [(0, 8)]
    assert str(splits) == "calls of 4, 5, 6, 7 rows split into 3"


def test_a_gain_that_may_be_noise_is_not_taken():
    assert choose_row_splits({1: 1.0, **{rows: 1.14 * rows for rows in range(2, 9)}}) == RowSplits()


def test_half_a_measurement_decides_nothing():
    assert choose_row_splits({rows: TURING_MS[rows] for rows in range(1, 6)}) == RowSplits()


@given(st.dictionaries(st.integers(1, 8), st.floats(0.01, 100)), st.integers(1, 600))
def test_parts_are_the_call_whole_and_in_order(times_ms, rows):
    parts = choose_row_splits(times_ms).parts(rows)

    assert [row for start, stop in parts for row in range(start, stop)] == list(range(rows))
    assert rows <= 8 or len(parts) == 1  # prompt pieces are never split


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("auto", None),
        ("off", RowSplits()),
        ("3", RowSplits(3, (4, 5, 6, 7, 8))),
        ("1", RowSplits(1, (2, 3, 4, 5, 6, 7, 8))),
        ("7", RowSplits(7, (8,))),
    ],
)
def test_a_setting_of_rows_is_a_limit_or_leaves_it_to_the_measurement(setting, expected):
    assert asked_row_splits(setting) == expected


@pytest.mark.parametrize("setting", ["0", "8", "-1", "3.0", "", "on", "٣", "9" * 5000])
def test_what_is_no_setting_of_rows_is_refused(setting):
    with pytest.raises(BadRequest, match="must be auto, off or a number from 1 to 7"):
        asked_row_splits(setting)


# float32


def test_float32_is_taken_where_it_saves_enough():
    """Half precision takes a slow kernel from 4 rows on; a piece in float32 is three times as fast."""
    float32_ms = {**dict.fromkeys((1, 2, 3), 9.0), **dict.fromkeys(range(4, 9), 20.0), 256: 100.0}
    chosen = choose_float32_rows({**TURING_MS, 256: 350.0}, float32_ms, ROOMY, 356 * 2**20)

    assert str(chosen) == "float32 from 4 rows up"
    assert [rows for rows in (1, 3, 4, 8, 9, 200, 256, 2000) if chosen.covers(rows)] == [4, 8, 9, 200, 256, 2000]
    assert chosen.has_pieces and not chosen.lacks_room


def test_between_two_counts_both_must_be_faster():
    chosen = choose_float32_rows({1: 1.0, 8: 1.0, 256: 10.0}, {1: 1.0, 8: 1.0, 256: 2.0}, ROOMY, 2**20)

    assert [rows for rows in (8, 9, 255, 256, 300) if chosen.covers(rows)] == [256, 300]
    assert str(chosen) == "float32 from 256 rows up"


def test_counts_apart_from_each_other_are_named():
    assert str(Float32Rows((1, 2, 3, 256), frozenset({1, 3}))) == "float32 at 1, 3 rows"
    assert str(Float32Rows((1, 2), frozenset())) == "float32 for no call"


def test_without_room_for_twice_the_buffer_prompt_pieces_stay_as_they_are():
    """A card with 0.8 GB free found no 340 MiB in one block for its first float32 piece."""
    buffer_bytes = 356 * 2**20
    own_ms, float32_ms = {**TURING_MS, 256: 350.0}, {**dict.fromkeys(range(1, 9), 7.9), 256: 100.0}
    room_bytes = 2 * buffer_bytes + SPARE_BYTES
    tight = choose_float32_rows(own_ms, float32_ms, room_bytes - 1, buffer_bytes)

    assert str(tight) == "float32 at 4, 5, 6, 7, 8 rows; no room for float32 prompt pieces"
    assert not tight.covers(9) and not tight.covers(256) and tight.covers(8)
    assert not choose_float32_rows(own_ms, float32_ms, room_bytes, buffer_bytes).lacks_room


def test_a_piece_that_was_not_even_timed_for_want_of_room_says_so():
    chosen = choose_float32_rows({**FLAT_MS, 256: 9.0}, FLAT_MS, 2**20, 2**20)

    assert str(chosen) == "float32 for no call; no room for float32 prompt pieces"


@pytest.mark.parametrize(("setting", "expected"), [("auto", True), ("off", False)])
def test_float32_is_measured_unless_it_is_off(setting, expected):
    assert is_float32_measured(setting) is expected


def test_what_is_no_setting_of_float32_is_refused():
    with pytest.raises(BadRequest, match="must be auto or off"):
        is_float32_measured("on")


# both together, on a card that is made up

TRUE_MS = st.lists(st.floats(0.01, 100), min_size=9, max_size=9)
JAGGED = st.one_of(TRUE_MS, TRUE_MS.map(sorted), st.tuples(st.floats(0.01, 100)).map(lambda one: list(one) * 9))
COUNTS = (*range(1, 9), 256)


@settings(max_examples=150, deadline=None)
@given(JAGGED, JAGGED, st.floats(0, 0.3), st.lists(st.floats(-1, 1), min_size=18, max_size=18), st.integers(0, 2**31))
def test_what_is_chosen_is_never_slower_than_the_default_by_more_than_the_noise(
    own, by_float32, noise, errors, free_bytes
):
    """Any curve, monotone or jagged; each time is measured wrong by up to `noise` either way."""
    own_ms, float32_ms = dict(zip(COUNTS, own, strict=True)), dict(zip(COUNTS, by_float32, strict=True))
    wrong = iter(errors)
    measured_own, measured_float32 = (
        {rows: true_ms * (1 + noise * next(wrong)) for rows, true_ms in true.items()} for true in (own_ms, float32_ms)
    )
    path = choose_path(measured_own, measured_float32, None, free_bytes, 2**28)

    for rows in COUNTS:
        taken_ms = sum(
            (float32_ms if path.float32.covers(stop - start) else own_ms)[stop - start]
            for start, stop in path.splits.parts(rows)
        )
        assert taken_ms <= own_ms[rows] * (1 + noise) / (1 - noise) * (1 + 1e-9)
        if noise <= 0.08:  # what has to be saved covers it
            assert taken_ms <= own_ms[rows] * (1 + 1e-9)


def test_a_call_is_split_into_what_runs_fastest_in_either_type():
    float32_ms = {1: 9.0, 2: 9.0, 3: 1.0, **dict.fromkeys(range(4, 9), 40.0)}
    path = choose_path(TURING_MS, float32_ms, None, ROOMY, 2**20)

    assert path.splits == RowSplits(3, (4, 5, 6, 7, 8))
    assert [rows for rows in range(1, 9) if path.float32.covers(rows)] == [3]


def test_splits_that_are_asked_for_are_not_chosen():
    path = choose_path({}, {}, RowSplits(2, (3, 4)), ROOMY, 2**20)

    assert path == FourbitPath(RowSplits(2, (3, 4)), Float32Rows())


def test_the_log_line_says_what_was_measured_and_chosen():
    own_ms, float32_ms = {**TURING_MS, 256: 350.0}, {**dict.fromkeys(range(1, 9), 36.0), 256: 100.0}
    path = choose_path(own_ms, float32_ms, None, ROOMY, 2**20)

    assert describe(path, own_ms, float32_ms) == (
        "one block ms M=1:8.00 M=2:8.10 M=3:8.30 M=4:37.00 M=5:37.20 M=6:37.50 M=7:37.80 M=8:38.00 M=256:350.00; "
        "calls of more rows split into 3; "
        "float32 M=1:36.00 M=2:36.00 M=3:36.00 M=4:36.00 M=5:36.00 M=6:36.00 M=7:36.00 M=8:36.00 M=256:100.00; "
        "float32 from 256 rows up"
    )


# measuring


class Card:
    """Takes its time on a clock of its own."""

    def __init__(self, call_s: float) -> None:
        self.now_s, self.calls, self._call_s = 1000.0, [], call_s

    def run(self, rows: int) -> None:
        self.now_s += self._call_s * rows
        self.calls.append(rows)

    def now(self) -> float:
        return self.now_s


def test_a_fast_card_is_timed_several_times_behind_a_warm_up():
    card = Card(call_s=0.001)

    assert measure_rows(card.run, (1, 2), 1e6, card.now) == {1: pytest.approx(1.0), 2: pytest.approx(2.0)}
    assert card.calls == [1] * 6 + [2] * 6


def test_a_slow_card_is_timed_once():
    card = Card(call_s=0.1)
    measure_rows(card.run, (1,), 1e6, card.now)

    assert card.calls == [1, 1]


@given(st.floats(1e-4, 3), st.floats(0, 5))
def test_a_load_waits_for_the_measurement_no_longer_than_it_may_but_for_one_call(call_s, budget_s):
    card = Card(call_s)
    began_s = card.now()
    times = measure_rows(card.run, tuple(range(1, 9)), began_s + budget_s, card.now)

    assert card.now() - began_s <= budget_s + 8 * call_s + 1e-6
    assert list(times) == list(range(1, len(times) + 1))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_every_device_is_measured_and_says_so(family, tmp_path):
    runs = (DeviceLayers("cpu:0", 0, 1), DeviceLayers("cpu:1", 1, 4))
    part = build(family, tmp_path, replace(NF4, device_layers=runs))
    with structlog.testing.capture_logs() as logs:
        assert choose_fourbit_paths(part, NF4, 2, 256) == {}

    lines = [line["event"] for line in logs]
    assert [line.split(" one block ms M=1:")[0] for line in lines] == [
        "[stage2 4bit-rows] cpu:0",
        "[stage2 4bit-rows] cpu:1",
    ]
    assert all("M=8:" in line and "float32" not in line for line in lines)  # it computes in float32 anyway


def test_half_precision_is_measured_against_float32(tmp_path):
    part = build("llama", tmp_path, replace(NF4, dtype="BF16"))
    with structlog.testing.capture_logs() as logs:
        kept = choose_fourbit_paths(part, replace(NF4, dtype="BF16"), 0, 32)
    (line,) = (line["event"] for line in logs)

    assert line.count("M=1:") == line.count("M=32:") == 2 and "; float32 M=1:" in line
    assert kept in ({}, {"cpu": WORKING_BYTES})  # a tiny weight in float32 needs no more than is kept anyway


@pytest.mark.parametrize(
    "holding",
    [Holding("F32"), Holding("F32", quantization="int8"), replace(NF4, fourbit_rows="off", fourbit_float32="off")],
)
def test_nothing_is_measured_where_nothing_could_be_chosen(holding, tmp_path):
    part = build("llama", tmp_path, holding)
    with structlog.testing.capture_logs() as logs:
        assert choose_fourbit_paths(part, holding, 0, 256) == {}

    assert logs == []


def test_a_fixed_limit_is_taken_unmeasured(tmp_path):
    part = build("llama", tmp_path)
    with structlog.testing.capture_logs() as logs:
        choose_fourbit_paths(part, replace(NF4, fourbit_rows="2"), 1, 256)

    assert [line["event"] for line in logs] == ["[stage1 4bit-rows] cpu calls of more rows split into 2"]


# computing


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_replies_of_split_products_are_those_of_whole_ones_to_rounding(family, tmp_path):
    part = build(family, tmp_path)
    ids = [5, 9, 200, 31, 77]

    def logits() -> torch.Tensor:
        cache = part.new_cache()
        whole = part.run(part.embed(ids), cache, 0)
        return torch.stack([part.logits(whole), part.logits(part.run(part.embed([8]), cache, len(ids)))])

    before = logits()
    choose_fourbit_paths(part, replace(NF4, fourbit_rows="2"), 0, 256)

    assert torch.allclose(logits(), before, atol=1e-3)


def test_a_row_is_the_same_whichever_way_it_goes_to_rounding():
    weights = [quantize_nf4(numbers(64, 128), torch.float32, torch.device("cpu")) for _ in range(2)]
    biases = [numbers(64), numbers(64)]
    x = numbers(7, 128)
    whole = QuantizedProduct(weights, biases)(x)
    path = FourbitPath(RowSplits(3, (4, 5, 6, 7, 8)), Float32Rows((1, 2, 3), frozenset({1, 3})))
    product = QuantizedProduct(weights, biases)
    product.replace_quantized(lambda weight: PathedWeight(weight, path))

    assert torch.allclose(product(x), whole, atol=1e-4)
    assert torch.allclose(product.added_to(whole, x), 2 * whole, atol=1e-4)
    assert product(x.bfloat16()).dtype is torch.bfloat16


class Seen(QuantizedWeight):
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.shape, self.calls = (4, 2), []

    def product(self, x_NI, bias_O=None):
        self.calls.append((x_NI.shape[0], x_NI.dtype, None if bias_O is None else bias_O.dtype))
        return torch.zeros(x_NI.shape[0], 4, dtype=x_NI.dtype)

    def joined(self, others):
        return None


def test_each_part_goes_in_the_type_of_its_own_row_count():
    seen = Seen()
    path = FourbitPath(RowSplits(3, (4, 5, 6, 7, 8)), Float32Rows((1, 2, 3, 64), frozenset({3, 64})))
    weight = PathedWeight(seen, path)
    given = [weight.product(torch.zeros(rows, 2, dtype=torch.float16), torch.zeros(4).half()) for rows in (2, 8, 64)]

    half, full = torch.float16, torch.float32
    assert seen.calls == [(2, half, half), (3, full, full), (3, full, full), (2, half, half), (64, full, full)]
    assert [(len(rows), rows.dtype) for rows in given] == [(2, half), (8, half), (64, half)]


@pytest.mark.parametrize("make", [product_of, AdaptedProduct, OneByOneProduct])
def test_adapters_stand_beside_the_way_the_base_goes(make):
    """What they add is computed once for the call, whatever becomes of the product under it."""
    linear = nn.Linear(128, 64, bias=False, device="meta")
    held = quantize_nf4(numbers(64, 128), torch.float32, torch.device("cpu"))
    module = Nf4Linear(linear, held, torch.float32)
    product, x = make([module]), numbers(5, 128)
    whole = product(x)
    product.replace_quantized(lambda weight: PathedWeight(weight, FourbitPath(RowSplits(2, (5,)))))
    seen: list[QuantizedWeight] = []
    product.replace_quantized(lambda weight: seen.append(weight) or weight)

    assert [type(weight) for weight in seen] == [PathedWeight]
    assert torch.allclose(product(x), whole, atol=1e-4)
