"""A session runs with the adapter its request names, on every stage, whatever runs beside it."""

import pytest
from swarm_core.errors import Reason

from tests.unit.stage_engine.arithmetic_compute import ArithmeticCompute
from tests.unit.stage_engine.memory_ring import Heard, MemoryRing

PROMPT = [5, 7, 11, 13, 17]
ADAPTERS = {"lora/red": 100, "lora/blue": 31}
NAMES = ("", "lora/red", "lora/blue")


def ring_of(stages: int, lacking: int | None = None, chunk: int = 0) -> MemoryRing:
    """Stages that all hold ADAPTERS but for `lacking`, which holds none."""
    computes = [
        ArithmeticCompute(index == 0, index == stages - 1, adapters={} if index == lacking else ADAPTERS)
        for index in range(stages)
    ]
    return MemoryRing(stages, chunk, computes=computes)


def alone(stages: int, adapter: str) -> list[int]:
    ring = ring_of(stages)
    heard = ring.submit("alone", PROMPT, adapter=adapter)
    ring.run()
    return heard.tokens


def assert_broke(heard: Heard) -> None:
    assert heard.broke is not None
    assert heard.broke.error.why == Reason.BAD_REQUEST
    assert heard.broke.error.facts["field"] == "adapter"
    assert heard.tokens == []


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("chunk", [0, 2])
def test_mixed_sessions_each_get_what_their_adapter_says_alone(stages, chunk):
    ring = ring_of(stages, chunk=chunk)
    heard = [ring.submit(f"{place}", PROMPT, adapter=NAMES[place % 3]) for place in range(6)]
    ring.run()
    lone = {name: alone(stages, name) for name in NAMES}

    assert [each.tokens for each in heard] == [lone[NAMES[place % 3]] for place in range(6)]
    assert len({tuple(tokens) for tokens in lone.values()}) == 3


def test_only_a_sessions_first_frame_names_its_adapter():
    ring = ring_of(2, chunk=2)
    ring.submit("a", PROMPT, adapter="lora/red")
    ring.run()
    hidden = [frame for batch in ring.sent for frame in batch.frames if frame.WhichOneof("body") == "hidden"]

    assert [frame.hidden.adapter for frame in hidden] == ["lora/red", *[""] * (len(hidden) - 1)]
    assert len(hidden) > 3


@pytest.mark.parametrize("stages", [1, 3])
def test_an_adapter_stage_0_does_not_hold_fails_its_session_alone(stages):
    ring = ring_of(stages)
    stranger, stays = ring.submit("a", PROMPT, adapter="lora/none"), ring.submit("b", PROMPT, adapter="lora/red")
    ring.run()

    assert_broke(stranger)
    assert stays.tokens == alone(stages, "lora/red")
    assert [compute.held_tokens() for compute in ring.computes] == [0] * stages
    assert ring.counters[0].sessions == 0


@pytest.mark.parametrize("lacking", [1, 2])
def test_an_adapter_a_later_stage_does_not_hold_fails_its_session_alone(lacking):
    ring = ring_of(3, lacking, chunk=2)
    stranger, stays = ring.submit("a", PROMPT, adapter="lora/red"), ring.submit("b", PROMPT)
    ring.run()

    assert_broke(stranger)
    assert stays.tokens == alone(3, "")
    assert [compute.held_tokens() for compute in ring.computes] == [0, 0, 0]


def test_the_base_runs_where_no_adapter_is_held_at_all():
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT)
    ring.run()

    assert heard.tokens == alone(2, "")
