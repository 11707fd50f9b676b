"""Ends of turn are not drawn before a reply is as long as it must be, wherever it is drawn."""

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import Reason
from swarm_stage.engine.reply import HELD_IDS_MAX

from tests.unit.stage_engine.arithmetic_compute import VOCABULARY
from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run

PROMPT = [5, 7, 11]


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("chunk", [0, 2])
def test_no_end_token_is_drawn_before_the_minimum_and_the_next_one_ends_the_reply(stages, chunk):
    free = lone_run(PROMPT, stages, 6)
    ends = frozenset({free[0], free[3]})
    ring = MemoryRing(stages, chunk=chunk)
    heard = ring.submit("a", PROMPT, new_tokens=500, end_ids=ends | set(range(0, 900, 100)), new_tokens_min=5)
    ring.run()

    assert len(heard.tokens) > 5
    assert not set(heard.tokens[:-1]) & (ends | set(range(0, 900, 100)))
    assert heard.finished.reason in (generation_pb2.FINISH_REASON_STOP, generation_pb2.FINISH_REASON_LENGTH)


@pytest.mark.parametrize("stages", [1, 2])
def test_without_a_minimum_the_first_end_token_ends_the_reply(stages):
    first = lone_run(PROMPT, stages, 1)[0]
    ring = MemoryRing(stages)
    heard = ring.submit("a", PROMPT, new_tokens=9, end_ids=frozenset({first}))
    ring.run()

    assert heard.tokens == [first]


@pytest.mark.parametrize("stages", [1, 2])
def test_a_minimum_of_one_holds_the_first_token_only(stages):
    free = lone_run(PROMPT, stages, 1)
    replaced = (free[0] + 1) % VOCABULARY
    ring = MemoryRing(stages)
    heard = ring.submit("a", PROMPT, new_tokens=1, end_ids=frozenset(free), new_tokens_min=1)
    ring.run()

    assert heard.tokens == [replaced]


def test_a_hold_travels_in_the_first_frame_only():
    ring = MemoryRing(3, chunk=2)
    ring.submit("a", PROMPT, new_tokens=4, end_ids=frozenset({7, 3}), new_tokens_min=2)
    ring.run()
    holds = [frame.hidden.hold for batch in ring.sent for frame in batch.frames if frame.hidden.HasField("hold")]

    assert [(list(hold.ids), hold.until_pos) for hold in holds] == [([3, 7], 5)] * 2  # over both links


def test_nobody_is_held_who_ignores_ends():
    ring = MemoryRing(2)
    ring.submit("a", PROMPT, new_tokens=4, new_tokens_min=4)
    ring.run()

    assert not any(frame.hidden.HasField("hold") for batch in ring.sent for frame in batch.frames)


@pytest.mark.parametrize("ids", [[VOCABULARY], list(range(HELD_IDS_MAX + 1))])
def test_a_hold_of_too_many_tokens_or_of_unknown_ones_ends_its_session(ids):
    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, new_tokens=4)
    ring.step(0)
    ring.links[1][0][0].frames[0].hidden.hold.CopyFrom(ring_pb2.Hold(ids=ids, until_pos=9))
    ring.run()

    assert heard.broke.error.why is Reason.BAD_FRAME
    assert ring.computes[1].held_tokens() == 0
