"""A reply's shape: asked for every token, obeyed by whoever draws, and a trouble to nobody else."""

import pytest
from silentswarm.core.v1 import generation_pb2, token_set_pb2
from swarm_core.errors import BadRequest, Reason
from swarm_stage.engine.constraint_guard import ASK_S_MAX

from tests.unit.stage_engine.arithmetic_compute import VOCABULARY
from tests.unit.stage_engine.memory_ring import MemoryRing, lone_run
from tests.unit.stage_engine.shapes import Cycle

PROMPT = [5, 7, 11]
STAGES = pytest.mark.parametrize("stages", [1, 2, 3])
ROW = [range(100, 200), None, [7, 600], range(0, VOCABULARY, 2), [1]]


def cycle(row=None, at=lambda asked: None) -> Cycle:
    return Cycle(row or ROW, VOCABULARY, at)


@STAGES
@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_every_token_is_allowed_and_told_beside_replies_that_are_free(stages, chunk):
    ring = MemoryRing(stages, chunk)
    shape = cycle()
    shaped = ring.submit("shaped", PROMPT, 12, constraint=shape)
    free = ring.submit("free", [2, 9, 4], 9)
    ring.run()
    allowed = [ROW[place % len(ROW)] for place in range(12)]

    assert all(ids is None or token in ids for token, ids in zip(shaped.tokens, allowed, strict=True))
    assert shape.accepted == shaped.tokens and shape.asked == 12
    assert free.tokens == lone_run([2, 9, 4], stages, 9)
    assert ring.counters[0].masks == 12


@STAGES
@pytest.mark.parametrize("fails_at", [0, 3])
@pytest.mark.parametrize("way", ["allowed", "accept", "empty", "beyond", "panic"])
def test_a_shape_that_cannot_be_followed_fails_its_reply_alone(stages, fails_at, way):
    class Panic(BaseException):
        """As a library in Rust raises it."""

    class Breaking(Cycle):
        def allowed(self):
            answer = super().allowed()
            if len(self.accepted) != fails_at or way == "accept":
                return answer
            if way == "empty":
                return token_set_pb2.TokenSet(only=token_set_pb2.TokenSet.IdList())
            if way == "beyond":
                return token_set_pb2.TokenSet(only=token_set_pb2.TokenSet.IdList(ids=[VOCABULARY]))
            raise Panic("stuck") if way == "panic" else RuntimeError("stuck")

        def accept(self, token):
            if way == "accept" and len(self.accepted) == fails_at:
                raise RuntimeError("stuck")
            super().accept(token)

    ring = MemoryRing(stages, chunk=2)
    beside = [ring.submit(f"beside {index}", [3 + index, 8], 9) for index in range(3)]
    broken = ring.submit("broken", PROMPT, 9, constraint=Breaking(ROW, VOCABULARY))
    ring.run()
    after = ring.submit("after", PROMPT, 4)
    ring.run()

    assert broken.broke.error.why in (Reason.STAGE_FAILED, Reason.BAD_FRAME)
    assert len(broken.tokens) == fails_at
    assert [one.tokens for one in beside] == [lone_run([3 + index, 8], stages, 9) for index in range(3)]
    assert after.tokens == lone_run(PROMPT, stages, 4)
    assert [compute.held_tokens() for compute in ring.computes] == [0] * stages
    assert ring.first.batches_out == ring.first.pieces_out == 0
    assert ring.budget.reserved_tokens == 0


def test_a_typed_error_of_a_shape_is_told_as_it_is():
    def refuse(asked: int) -> None:
        raise BadRequest("too deep", field="constraint")

    ring = MemoryRing(2)
    heard = ring.submit("a", PROMPT, 4, constraint=cycle(at=refuse))
    ring.run()

    assert heard.broke.error.why is Reason.BAD_REQUEST and heard.broke.error.facts["field"] == "constraint"


@STAGES
def test_a_shape_that_takes_too_long_over_a_token_is_ended_and_what_it_took_is_counted(stages):
    ring = MemoryRing(stages)
    took = {0: 0.25, 1: 0.25, 2: ASK_S_MAX + 0.5}
    heard = ring.submit("slow", PROMPT, 9, constraint=cycle(at=lambda asked: ring.clock.advance(took[asked])))
    free = ring.submit("free", PROMPT, 9)
    ring.run()

    assert heard.broke.error.why is Reason.STAGE_FAILED and "1.5 s" in heard.broke.error.message
    assert len(heard.tokens) == 2 and len(free.tokens) == 9
    assert ring.counters[0].masks_s == pytest.approx(2.0)


@STAGES
def test_a_hold_does_not_empty_a_shape_and_the_end_it_must_take_ends_the_reply(stages):
    end = 3
    ring = MemoryRing(stages)
    shape = cycle([[end, 40], [end, 50], [end]])
    heard = ring.submit("a", PROMPT, 9, end_ids=frozenset({end}), new_tokens_min=6, constraint=shape)
    ring.run()

    assert heard.tokens == [40, 50, end]
    assert heard.finished.reason == generation_pb2.FINISH_REASON_STOP


@pytest.mark.parametrize("chunk", [0, 1])
def test_only_frames_that_ask_for_a_token_say_what_is_allowed_and_they_say_it_on_every_link(chunk):
    ring = MemoryRing(3, chunk)
    ring.submit("a", PROMPT, 3, constraint=cycle([[4], None, range(0, VOCABULARY, 2)]))
    ring.run()
    hidden = [frame.hidden for batch in ring.sent for frame in batch.frames if frame.HasField("hidden")]
    said = [one.allowed.WhichOneof("form") for one in hidden if one.sample]

    assert said == ["only", "only", None, None, "bits", "bits"]
    assert not any(one.HasField("allowed") for one in hidden if not one.sample)


def test_replies_without_a_shape_send_nothing_new():
    ring = MemoryRing(2)
    ring.submit("a", PROMPT, 3)
    ring.run()
    hidden = [frame.hidden for batch in ring.sent for frame in batch.frames if frame.HasField("hidden")]
    sampled = [frame.sampled for batch in ring.sent for frame in batch.frames if frame.HasField("sampled")]

    assert not any(one.HasField("allowed") or one.prompt_ids for one in hidden)
    assert not any(one.likelihoods for one in sampled)
    assert ring.counters[0].masks == 0
