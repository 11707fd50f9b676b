"""A load request that asks for weights in few bits: what it is answered."""

import asyncio
from pathlib import Path

import pytest
from silentswarm.core.v1 import stage_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import CapabilityMissing
from swarm_core.quantization import INT4_FAST, INT8, NF4, NONE
from swarm_stage.serve.build import build
from swarm_stage.serve.runner import StageRunner

from tests.models import make_tiny_model, split_tensors

WIDE = {"hidden_size": 64, "intermediate_size": 128}


def request_of(folder: Path, quantization: str) -> stage_rpc.LoadRequest:
    """The middle of a tiny model, as a fellow asks for it."""
    spec = stage_pb2.StageSpec(
        layer_start=1,
        layer_stop=3,
        stage_index=1,
        stage_count=3,
        dtype="F32",
        context_tokens=64,
        quantization=quantization,
    )
    return stage_rpc.LoadRequest(
        spec=spec, model_dir=str(folder), tensor_files=split_tensors(folder, folder / "tensors"), device="cpu"
    )


async def load(folder: Path, quantization: str) -> stage_rpc.Loaded:
    """What a stage process answers to a load."""
    runner = StageRunner()
    try:
        return await asyncio.wait_for(
            runner.load(request_of(folder, quantization), lambda step, done, total: None), timeout=60
        )
    finally:
        await runner.close()


@pytest.mark.parametrize(
    ("asked", "shape", "held"),
    [
        (NF4, WIDE, NF4),
        (INT8, {}, INT8),
        (INT4_FAST, WIDE, INT4_FAST),
        (INT4_FAST, {}, NF4),
        (NONE, {}, NONE),
        ("", {}, NONE),
    ],
)
async def test_a_stage_answers_how_its_weights_are_held_after_all(asked, shape, held, tmp_path):
    loaded = await load(make_tiny_model("llama", tmp_path, **shape), asked)

    assert loaded.quantization == held
    assert [note for note in loaded.notes if "int4-fast cannot run here" in note] == list(loaded.notes)
    assert bool(loaded.notes) is (asked != held and asked == INT4_FAST)
    assert loaded.weight_bytes > 0


def test_a_method_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(CapabilityMissing, match="'awq' does not exist; one of: none, nf4, int8, int4-fast"):
        build(request_of(make_tiny_model("llama", tmp_path), "awq"), lambda step, done, total: None)
