"""A slice over several devices: who holds what, and that it computes what it computes on one."""

from pathlib import Path

import pytest
import structlog
import torch
from hypothesis import given
from hypothesis import strategies as st
from silentswarm.core.v1 import stage_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import BadRequest
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.devices import spread_over
from swarm_stage.model.holding import DeviceLayers, Holding
from swarm_stage.model.lean.slice import LeanSlice
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.serve import build as serve_build
from swarm_stage.serve.rooms import rooms_of

from tests.models import VOCABULARY, make_tiny_model, read_config, split_tensors
from tests.unit.stage_model.homes import Homes
from tests.unit.stage_model.slices import run_greedy

TWO = (DeviceLayers("cpu:0", 0, 1), DeviceLayers("cpu:1", 1, 4))
PROMPT = [5, 9, 200, 31, 77, 12, 8]


@pytest.fixture
def two_threads():
    """With one, numpy multiplies lean slices on some processors, unseen by torch's dispatcher."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def build(folder, layers: LayerRange, *runs: DeviceLayers, dtype: str = "F32") -> SliceModel:
    files = split_tensors(folder, folder / "tensors")
    return build_slice(read_config(folder), layers, files, Holding(dtype, device_layers=runs), lambda done, total: None)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3_text", "granite"])
def test_two_devices_give_bit_for_bit_what_one_gives(family, tmp_path):
    folder = make_tiny_model(family, tmp_path)
    whole = LayerRange(0, 4, 4)
    one, two = build(folder, whole), build(folder, whole, *TWO)
    tokens, logits = run_greedy([one], PROMPT, 6, piece=3)
    spread_tokens, spread_logits = run_greedy([two], PROMPT, 6, piece=3)

    assert isinstance(two, LeanSlice) == (family in ("llama", "qwen3"))
    assert spread_tokens == tokens
    assert torch.equal(torch.stack(spread_logits), torch.stack(logits))


@pytest.mark.parametrize("tied", [True, False])
def test_no_operation_of_a_lean_slice_mixes_devices(tied, tmp_path, two_threads):
    assert homes_of_results("llama", tied, tmp_path) == {"cpu:1"}


@pytest.mark.parametrize(("family", "tied"), [("gemma2", True), ("gemma3_text", False), ("cohere2", True)])
def test_no_operation_of_transformers_own_forward_mixes_devices(family, tied, tmp_path):
    assert homes_of_results(family, tied, tmp_path) == {"cpu:1"}


def homes_of_results(family: str, tied: bool, tmp_path: Path) -> set[str | None]:
    """Where the results of a prompt, a piece behind it and a step are. Fails where tensors of two devices meet."""
    folder = make_tiny_model(family, tmp_path, tied=tied)
    with Homes() as homes:
        part = build(folder, LayerRange(0, 4, 4), *TWO)
        cache, results = part.new_cache(32), []
        for ids, pos in ((PROMPT, 0), (PROMPT[:3], 7), ([4], 10)):
            hidden_BTD = part.run(part.embed(ids), cache, pos)
            results += [hidden_BTD, part.logits(hidden_BTD)]
        assert homes.moved > 0
        return {homes.home(result) for result in results}


def test_batches_of_sessions_cross_devices_together(tmp_path, two_threads):
    folder = make_tiny_model("llama", tmp_path)
    one, two = (build(folder, LayerRange(0, 4, 4), *runs) for runs in ((), TWO))

    def step(part: SliceModel) -> torch.Tensor:
        caches = [part.new_cache() for _ in range(3)]
        for length, cache in enumerate(caches, 1):
            part.run(part.embed(PROMPT[:length]), cache, 0)
        hidden_B1D = part.run_batch(part.embed([7, 8, 9]).transpose(0, 1), caches, [1, 2, 3])
        return part.logits_batch(hidden_B1D)

    alone = step(one)
    with Homes():
        assert torch.equal(step(two), alone)


def test_operations_on_two_devices_are_seen():
    """Without this the tests above could not fail."""
    with Homes(), pytest.raises(AssertionError, match=r"cpu:0.*cpu:1"):
        torch.add(torch.ones(2, device="cpu:0"), torch.ones(2, device="cpu:1"))


def test_keys_and_values_are_on_the_device_of_their_layer(tmp_path, two_threads):
    with Homes() as homes:
        part = build(make_tiny_model("llama", tmp_path), LayerRange(0, 4, 4), *TWO)
        cache = part.new_cache(8)
        part.run(part.embed(PROMPT), cache, 0)
        homes_of_rows = [{homes.home(rows) for rows in layer} for layer in cache.rows(0, 7)]

    assert homes_of_rows == [{"cpu:0"}, {"cpu:1"}, {"cpu:1"}, {"cpu:1"}]


def test_a_spread_cache_keeps_what_it_held_when_it_grows(tmp_path):
    """Growth copies by what the whole session holds; a part that thought itself empty would lose the past."""
    folder = make_tiny_model("llama", tmp_path)
    one, two = (build(folder, LayerRange(0, 4, 4), *runs) for runs in ((), TWO))
    ids = (PROMPT * 40)[:250]
    tokens, logits = run_greedy([one], ids, 3, piece=50)
    spread_tokens, spread_logits = run_greedy([two], ids, 3, piece=50)

    assert spread_tokens == tokens
    assert torch.equal(torch.stack(spread_logits), torch.stack(logits))


@pytest.mark.parametrize(
    ("layers", "holds_ends"), [(LayerRange(0, 3, 4), (True, False)), (LayerRange(1, 4, 4), (False, True))]
)
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_bytes_are_counted_where_they_are_held(family, layers, holds_ends, tmp_path):
    """Embeddings on the first device, final norm and head on the last."""
    folder = make_tiny_model(family, tmp_path)
    start = layers.layer_start
    runs = (DeviceLayers("cpu:0", start, start + 1), DeviceLayers("cpu:1", start + 1, start + 3))
    part = build(folder, layers, *runs)
    first, last = part.run_weight_bytes
    vocabulary_bytes = VOCABULARY * part.hidden_size * 4
    embedding_bytes, head_bytes = (vocabulary_bytes if held else 0 for held in holds_ends)
    layer_bytes = first - embedding_bytes

    assert last == 2 * layer_bytes + head_bytes + (part.hidden_size * 4 if head_bytes else 0)
    assert first + last == part.weight_bytes == build(folder, layers).weight_bytes


def test_a_head_tied_to_embeddings_on_another_device_is_a_copy_that_counts(tmp_path):
    folder = make_tiny_model("llama", tmp_path)
    one, two = (build(folder, LayerRange(0, 4, 4), *runs) for runs in ((), TWO))

    assert two.weight_bytes == one.weight_bytes + VOCABULARY * one.hidden_size * 4


def test_each_memory_is_asked_once_for_the_layers_it_holds(tmp_path):
    """However many runs a device has; the processor's memory is one by any name."""
    folder = make_tiny_model("llama", tmp_path)
    part = build(folder, LayerRange(0, 4, 4), *TWO)
    (room,) = rooms_of(part, {"cpu": 400 * 2**20})

    assert room.kv_bytes_per_token == part.kv_bytes_per_token == 4 * part.layer_kv_bytes_per_token
    assert room.free_bytes > 0 and room.working_bytes == 400 * 2**20


@pytest.mark.parametrize(
    "runs",
    [
        [(0, 1), (2, 4)],  # 1 is nowhere
        [(0, 3), (2, 4)],  # 2 is twice
        [(2, 4), (0, 2)],
        [(0, 3)],
        [(0, 5)],
        [(1, 4)],
        [(0, 2), (2, 2), (2, 4)],
    ],
)
def test_runs_that_are_not_exactly_the_layers_are_refused(runs):
    asked = [DeviceLayers(f"cuda:{index}", *run) for index, run in enumerate(runs)]
    with pytest.raises(BadRequest, match="layers 0 to 4 cannot be spread"):
        spread_over(LayerRange(0, 4, 6), "cpu", asked)


def test_a_run_on_no_device_is_refused():
    with pytest.raises(BadRequest, match="0 to 4 on no device"):
        spread_over(LayerRange(0, 4, 6), "cpu", [DeviceLayers("", 0, 4)])


@given(st.integers(0, 50), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_layer_has_the_device_it_was_planned_on(start, lengths):
    stops = [start + sum(lengths[: index + 1]) for index in range(len(lengths))]
    begins = [start, *stops[:-1]]
    asked = [DeviceLayers(f"cuda:{index}", *run) for index, run in enumerate(zip(begins, stops, strict=True))]
    spread = spread_over(LayerRange(start, stops[-1], 200), "cpu", asked)
    planned = [run.device for run in asked for _ in range(run.layer_start, run.layer_stop)]

    assert [spread.device_of_layer(layer) for layer in range(sum(lengths))] == planned
    assert [spread.device_of(f"model.layers.{layer}.x") for layer in range(sum(lengths))] == planned
    assert spread.device_of("model.embed_tokens.weight") == planned[0]
    assert {spread.device_of("model.norm.weight"), spread.device_of("lm_head.weight")} == {planned[-1]}


def test_a_load_spreads_as_it_was_told_and_measures_both_devices(tmp_path):
    """From the request to the line in the log that says who set the budget."""
    folder = make_tiny_model("llama", tmp_path)
    runs = [stage_rpc.DeviceLayers(**vars(run)) for run in TWO]
    request = stage_rpc.LoadRequest(
        spec=stage_pb2.StageSpec(layer_start=0, layer_stop=4, dtype="F32", quantization="nf4", context_tokens=64),
        model_dir=str(folder),
        tensor_files={name: str(path) for name, path in split_tensors(folder, folder / "tensors").items()},
        device_layers=runs,
        fourbit_rows="3",
    )
    with structlog.testing.capture_logs() as logs:
        built = serve_build.build(request, lambda step, done, total: None)

    assert [run.device for run in built.model.spread.runs] == ["cpu:0", "cpu:1"]
    assert [line["event"] for line in logs] == [
        "[stage0 4bit-rows] cpu:0 calls of more rows split into 3",
        "[stage0 4bit-rows] cpu:1 calls of more rows split into 3",
        "kv budget",
    ]
    assert logs[-1]["set_by"] == "cpu" and logs[-1]["tokens"] == built.kv_tokens_measured > 0
