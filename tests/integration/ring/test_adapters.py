"""Rings of real stage processes with adapters: sessions of several step together, each as one process says it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from peft import PeftModel
from safetensors.torch import load_file
from silentswarm.core.v1 import generation_pb2, reason_pb2, stage_pb2
from swarm_core.quantization import NF4

from tests.integration.ring.stages import StageRing, greedy
from tests.integration.ring.watch import until_free
from tests.lora import adapter_source, make_adapter
from tests.models import load_reference, make_tiny_model, reference_run
from tests.unit.stage_model.quantised import load_quantised_reference
from tests.unit.stage_model.slices import assert_same_reply

DIRECT, RELAY = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY
NEW_TOKENS = 16
NAMES = ("red", "blue", "green")
MIXED = ("red", "", "blue", "green", "red", "blue")
LoneReply = Callable[[str, tuple[int, ...]], tuple[list[int], list[torch.Tensor]]]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Adapted:
    """A ring with three adapters, and what peft says in one process with any of them."""

    ring: StageRing
    alone: LoneReply
    adapters: dict[str, Path]
    base: Path


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["", pytest.param(NF4, marks=pytest.mark.slow)], ids=["full", NF4]
)
async def adapted(request, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Adapted]:
    """A llama in two stages; the first computes adapters by our own arithmetic, the second by peft's layers."""
    torch.set_num_threads(1)
    base, folder = make_tiny_model("llama", tmp_path_factory.mktemp("llama")), tmp_path_factory.mktemp("adapters")
    adapters = {
        "red": make_adapter(base, folder / "red", seed=1),
        "blue": make_adapter(base, folder / "blue", seed=2, rank=2, targets=("q_proj", "v_proj"), strength=0.4),
        "green": make_adapter(base, folder / "green", seed=3, rank=8, use_rslora=True, layers_to_transform=[1, 2]),
    }

    @cache
    def model_with(name: str) -> Any:
        model = load_quantised_reference(base, NF4) if request.param else load_reference(base)
        return PeftModel.from_pretrained(model, adapters[name]).eval() if name else model

    @cache
    def alone(name: str, prompt: tuple[int, ...]) -> tuple[list[int], list[torch.Tensor]]:
        return reference_run(model_with(name), list(prompt), NEW_TOKENS)

    sources = [adapter_source(adapters[name], model_id=f"tiny/{name}") for name in NAMES]
    held = {"adapters": sources, "lora": ("lean", "peft"), "quantization": request.param}
    async with StageRing(base, tmp_path_factory.mktemp("ring"), 2, 16, **held) as ring:
        assert all(answer.connected for answer in await ring.wire(DIRECT))
        yield Adapted(ring, alone, adapters, base)


def prompt_of(place: int) -> tuple[int, ...]:
    """Some longer than a piece, no two alike."""
    numbers = random.Random(place)
    return tuple(numbers.randrange(5, 300) for _ in range(5 + 7 * place))


def naming(adapter: str, prompt: tuple[int, ...]) -> generation_pb2.Generation:
    generation = greedy(list(prompt), NEW_TOKENS)
    generation.adapter = f"tiny/{adapter}" if adapter else ""
    return generation


async def say(ring: StageRing, adapter: str, place: int) -> list[int]:
    events = [event async for event in ring.generate(naming(adapter, prompt_of(place)), f"r{place}")]
    assert events[-1].WhichOneof("event") == "done", events[-1]
    return [token for event in events for token in event.tokens.ids]


@pytest.mark.parametrize("route", [DIRECT, RELAY], ids=["direct", "relay"])
async def test_mixed_sessions_each_say_what_one_process_says_with_their_adapter(adapted, route):
    assert all(answer.connected for answer in await adapted.ring.wire(route))
    await adapted.ring.probe()  # by the base

    said = await asyncio.gather(*(say(adapted.ring, name, place) for place, name in enumerate(MIXED)))
    for place, (name, ids) in enumerate(zip(MIXED, said, strict=True)):
        assert_same_reply(ids, *adapted.alone(name, prompt_of(place)))
        if name:
            assert ids != adapted.alone("", prompt_of(place))[0], f"{name} changed nothing"


async def test_in_a_batch_a_session_says_what_it_says_alone(adapted):
    lone = [await say(adapted.ring, name, place) for place, name in enumerate(MIXED)]
    said = await asyncio.gather(*(say(adapted.ring, name, place) for place, name in enumerate(MIXED)))

    for place, (name, ids) in enumerate(zip(MIXED, said, strict=True)):
        assert_same_reply(ids, lone[place], adapted.alone(name, prompt_of(place))[1])


async def test_an_unknown_adapter_fails_its_session_alone_and_leaves_nothing(adapted):
    ring = adapted.ring
    stays = asyncio.create_task(say(ring, "red", 4))
    events = [event async for event in ring.generate(naming("none", prompt_of(0)), "stranger")]

    assert [event.WhichOneof("event") for event in events][-1] == "failed"
    assert events[-1].failed.reason == reason_pb2.REASON_BAD_REQUEST
    assert "tiny/none" in events[-1].failed.message
    assert_same_reply(await stays, *adapted.alone("red", prompt_of(4)))
    await until_free(ring)


async def test_adapters_count_among_the_bytes_a_stage_says_it_holds(adapted):
    """In float32, whatever they are stored in or the base is held in; each stage its own layers'."""
    for stage, layers in zip(adapted.ring.stages, (("0.", "1."), ("2.", "3.")), strict=True):
        mine = tuple(f"base_model.model.model.layers.{layer}" for layer in layers)
        stored = [load_file(path / "adapter_model.safetensors") for path in adapted.adapters.values()]
        adapter_bytes = sum(
            4 * tensor.numel() for tensors in stored for name, tensor in tensors.items() if name.startswith(mine)
        )
        base_bytes = stage.loaded.weight_bytes - adapter_bytes
        full_bytes = (adapted.base / "model.safetensors").stat().st_size

        assert adapter_bytes > 0
        assert 0.1 * full_bytes < base_bytes < 0.75 * full_bytes
