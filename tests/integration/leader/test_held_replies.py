"""Replies whose ring or machine fails in the middle: held, and gone on with where they broke off."""

from typing import Any

from silentswarm.core.v1 import capabilities_pb2, generation_pb2, reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import inference_link_pb2 as serve_pb2
from silentswarm.leader.v1 import inference_pb2, serving_pb2
from swarm_core.errors import Reason

from tests.integration.leader.callers import TokenClient, bearing
from tests.integration.leader.rig import MODEL, Rig, refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined

Event = generation_pb2.GenerationEvent
RESUMES: dict[str, Any] = {"serve_resume": capabilities_pb2.ServeResume()}
HOLD_S = 8.0


def pair(**able: Any) -> tuple[ScriptedFellow, ScriptedFellow]:
    """Two fellows that say only what they are told to; the roomier one gets the first stage."""
    fellows = ScriptedFellow("attic", 3 * 10**9, declare(**able)), ScriptedFellow("kitchen", 2 * 10**9, declare(**able))
    for fellow in fellows:
        fellow.replies_with = None
    return fellows


def tokens(*ids: int, text: str = "") -> dict[str, Any]:
    """A batch."""
    return {"tokens": Event.TokenBatch(text=text or " ".join(map(str, ids)) + " ", ids=ids)}


def started() -> dict[str, Any]:
    """The first event."""
    return {"started": Event.Started(prompt_tokens=3, seed=1)}


def done(count: int, **timing: Any) -> dict[str, Any]:
    """The last event."""
    told = generation_pb2.Timing(**timing)
    return {"done": Event.Done(finish_reason=1, prompt_tokens=3, completion_tokens=count, timing=told)}


def broke(message: str = "the ring broke", reason: int = reason_pb2.REASON_LINK_BROKEN) -> dict[str, Any]:
    """The end of an attempt."""
    return {"failed": Event.Failed(reason=reason, message=message)}


async def begin(rig: Rig, fellow: ScriptedFellow, request_id: str = "r1") -> Any:
    """A reply of two tokens so far, all read."""
    call = rig.generate(request_id=request_id)
    await until(lambda: bool(fellow.requests), "the request arrives")
    fellow.say(request_id, 1, **started())
    fellow.say(request_id, 2, **tokens(7, 8))
    events = aiter(call)
    assert [(await anext(events)).event.sequence for _ in range(2)] == [1, 2]
    return events


async def rest_of(events: Any) -> tuple[list[Event], list[str]]:
    """What else comes: numbered events, and reasons why it waited."""
    numbered, waits = [], []
    async for answer in events:
        if answer.event.HasField("queued"):
            assert answer.event.sequence == 0
            waits.append(answer.event.queued.reason)
        else:
            numbered.append(answer.event)
    return numbered, waits


async def test_a_reply_goes_on_at_the_next_epoch_with_what_its_caller_has(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        ready = await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        attic.say("r1", 3, **broke())
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **tokens(9))
        attic.say("r1", 4, **done(3))
        numbered, waits = await rest_of(events)

        first, second = attic.requests
        assert second.generation.resume == generation_pb2.ReplyResume(ids=[7, 8], sequence=2)
        assert (second.epoch, second.placement_id) == (ready.epoch + 1, ready.placement_id)
        assert second.generation.sampling.seed == first.generation.sampling.seed
        assert [event.sequence for event in numbered] == [3, 4]
        assert list(numbered[0].tokens.ids) == [9]
        assert waits
        await until(lambda: rig.leader.gates.of(MODEL).running == 0, "its place is free")
        assert rig.leader.replies.is_empty


async def test_it_breaks_again_and_again_and_every_token_comes_once(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        for attempt in (2, 3):
            attic.say("r1", attempt + 1, **broke())
            attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
            await until(lambda count=attempt: len(attic.requests) == count, "it is asked for again")
            attic.say("r1", attempt + 1, **tokens(10 + attempt))
        attic.say("r1", 5, **done(4))
        numbered, _ = await rest_of(events)

        assert list(attic.requests[2].generation.resume.ids) == [7, 8, 12]
        assert [event.sequence for event in numbered] == [3, 4, 5]
        assert [list(event.tokens.ids) for event in numbered[:2]] == [[12], [13]]


async def test_the_last_text_without_its_end_is_told_to_the_ring(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)
        attic.say("r1", 3, tokens=Event.TokenBatch(text="!"))
        assert (await anext(events)).event.tokens.text == "!"

        attic.say("r1", 4, **broke())
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 4, **done(2))
        numbered, _ = await rest_of(events)

        assert attic.requests[1].generation.resume == generation_pb2.ReplyResume(
            ids=[7, 8], sequence=3, is_flushed=True
        )
        assert [event.sequence for event in numbered] == [4]


async def test_a_ring_that_cannot_resume_ends_a_reply_that_has_begun_as_before(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair()) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        attic.say("r1", 3, **broke("stage 1 is gone"))
        refusal = await refusal_of(events)

        assert (refusal.why, refusal.message) == (Reason.LINK_BROKEN, "stage 1 is gone")
        assert len(attic.requests) == 1


async def test_a_reply_of_which_nothing_came_is_asked_for_again_by_any_ring(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair()) as (attic, _):
        await rig.load_ready(num_stages=2)
        call = rig.generate(request_id="r1")
        await until(lambda: bool(attic.requests), "the request arrives")

        attic.say("r1", 1, **broke())
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 1, **started())
        attic.say("r1", 2, **done(0))
        numbered, _ = await rest_of(call)

        assert not attic.requests[1].generation.HasField("resume")
        assert [event.sequence for event in numbered] == [1, 2]


async def test_what_the_caller_did_wrong_is_no_break(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        attic.say("r1", 3, **broke("too long", reason_pb2.REASON_CONTEXT_TOO_LONG))

        assert (await refusal_of(events)).why is Reason.CONTEXT_TOO_LONG
        assert len(attic.requests) == 1


async def test_a_ring_that_does_not_come_back_in_time_ends_it_with_what_broke_it(tmp_path):
    async with running_leader(tmp_path, hold_s=0.4, lease_s=9.0) as rig, joined(rig.address, *pair(**RESUMES)) as both:
        attic, kitchen = both
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        await kitchen.leave()
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        attic.say("r1", 3, **broke("stage 1 is gone"))
        refusal = await refusal_of(events)

        assert (refusal.why, refusal.message) == (Reason.LINK_BROKEN, "stage 1 is gone")
        assert rig.leader.gates.of(MODEL).running == 0


async def test_a_reply_goes_on_in_the_model_s_next_placement(tmp_path):
    """The lost machine does not come back, and what is left can hold the model alone."""
    async with (
        running_leader(tmp_path, hold_s=HOLD_S, heal_wait_s=0.3) as rig,
        joined(rig.address, *pair(**RESUMES)) as (attic, kitchen),
    ):
        before = await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        await kitchen.leave()
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        attic.say("r1", 3, **broke("the ring broke; it is wired anew, try again soon"))
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **tokens(9))
        attic.say("r1", 4, **done(3))
        numbered, waits = await rest_of(events)

        again = attic.requests[1]
        assert waits and not [why for why in waits if "try again" in why or len(why) >= 100]
        assert again.placement_id != before.placement_id
        assert again.generation.resume == generation_pb2.ReplyResume(ids=[7, 8], sequence=2)
        assert [event.sequence for event in numbered] == [3, 4]


async def test_a_placement_that_ends_ends_its_held_replies_with_its_reason(tmp_path):
    async with (
        running_leader(tmp_path, hold_s=HOLD_S, lease_s=9.0) as rig,
        joined(rig.address, *pair(**RESUMES)) as (attic, kitchen),
    ):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)
        await kitchen.leave()
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        attic.say("r1", 3, **broke("stage 1 is gone"))
        assert (await anext(events)).event.HasField("queued")

        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        refusal = await refusal_of(events)

        assert refusal.why is Reason.MODEL_NOT_READY
        assert refusal.message == (await rig.get()).reason


async def test_a_caller_that_leaves_while_it_is_held_frees_everything(tmp_path):
    async with (
        running_leader(tmp_path, hold_s=HOLD_S, lease_s=9.0) as rig,
        joined(rig.address, *pair(**RESUMES)) as (attic, kitchen),
    ):
        await rig.load_ready(num_stages=2)
        call = rig.generate(request_id="r1")
        await until(lambda: bool(attic.requests), "the request arrives")
        attic.say("r1", 1, **started())
        await kitchen.leave()
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        attic.say("r1", 2, **broke())
        gate = rig.leader.gates.of(MODEL)
        await until(lambda: (gate.running, gate.waiting) == (0, 1), "it is held, and counts as waiting")

        call.cancel()

        await until(lambda: gate.waiting == 0, "its place is free")
        assert rig.leader.replies.is_empty
        assert len(attic.requests) == 1


async def test_a_request_for_a_model_that_heals_waits_for_it(tmp_path):
    async with (
        running_leader(tmp_path, hold_s=HOLD_S, lease_s=9.0) as rig,
        joined(rig.address, *pair()) as (attic, kitchen),
    ):
        await rig.load_ready(num_stages=2)
        await kitchen.leave()
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: rig.leader.board.get(MODEL).state != "ready", "it heals")
        attic.replies_with = ["Hi", " there"]

        events = aiter(rig.generate())
        told = (await anext(events)).event
        await kitchen.join(rig.address)

        assert told.queued.reason
        numbered, _ = await rest_of(events)
        assert "".join(event.tokens.text for event in numbered) == "Hi there"


async def test_the_timing_of_a_held_reply_adds_up(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)
        attic.say("r1", 3, **broke())
        attic.report(link_pb2.STAGE_EVENT_KIND_LINK_BROKEN, "connection reset")
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **tokens(9, 10))
        attic.say("r1", 4, **done(4, queue_ms=1, prefill_ms=2, decode_ms=0.5, stage_ms=[0.25, 0.25], total_ms=3.5))
        numbered, _ = await rest_of(events)

        timing = numbered[-1].done.timing
        assert abs(timing.queue_ms + timing.prefill_ms + 3 * sum(timing.stage_ms) - timing.total_ms) < 1e-6
        assert timing.queue_ms > 1


def kept(fellow: ScriptedFellow, first_sequence: int, last_sequence: int, request: int = -1) -> serve_pb2.KeptReply:
    """The reply that was asked for last, as its fellow names it."""
    asked = fellow.requests[request]
    return serve_pb2.KeptReply(
        request_id=asked.request_id,
        placement_id=asked.placement_id,
        epoch=asked.epoch,
        owner=asked.owner,
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        model_id=asked.model_id,
    )


async def test_when_only_the_inference_link_broke_the_same_reply_goes_on(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair()) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        await attic.drop_inference_link()
        attic.open_inference_link(kept(attic, 1, 3))
        await until(lambda: bool(attic.resumes), "its events are asked for")
        attic.say("r1", 2, **tokens(7, 8))  # a repeat
        attic.say("r1", 3, **tokens(9))
        attic.say("r1", 4, **done(3))
        numbered, _ = await rest_of(events)

        assert attic.requests[0].keep_ms == HOLD_S * 1000
        assert attic.resumes == [serve_pb2.ResumeReply(request_id="r1", after_sequence=2)]
        assert [event.sequence for event in numbered] == [3, 4]
        assert len(attic.requests) == 1


async def test_a_fellow_that_did_not_keep_it_is_asked_again(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)

        await attic.drop_inference_link()
        attic.open_inference_link(kept(attic, 5, 9))  # what came in between is gone
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **done(2))
        numbered, _ = await rest_of(events)

        assert attic.resumes == []
        assert list(attic.requests[1].generation.resume.ids) == [7, 8]
        assert [event.sequence for event in numbered] == [3]


async def test_a_reply_given_up_while_its_fellow_was_away_is_cancelled_there(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair()) as (attic, _):
        await rig.load_ready(num_stages=2)
        call = rig.generate(request_id="r1")
        await until(lambda: bool(attic.requests), "the request arrives")
        await attic.drop_inference_link()
        call.cancel()
        await until(lambda: rig.leader.replies.is_empty, "it is over here")

        attic.open_inference_link(kept(attic, 1, 1))

        await until(lambda: bool(attic.cancels), "it is over there")
        assert attic.cancels == ["r1"]


def resume(rig: Rig, request_id: str, after_sequence: int, secret: str = "") -> Any:
    """Ask for the events of a reply that was lost."""
    request = inference_pb2.ResumeRequest(request_id=request_id, after_sequence=after_sequence)
    return rig.inference.Resume(request, timeout=10, metadata=bearing(secret))


async def test_after_a_restart_a_caller_gets_the_rest_of_its_reply(tmp_path):
    attic, kitchen = pair(**RESUMES)
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        await begin(rig, attic)
        await rig.kill()
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig:
        call = resume(rig, "r1", 2)
        await attic.connect_only(rig.address)
        attic.open_inference_link(kept(attic, 1, 3))
        async with joined(rig.address, kitchen):
            await until(lambda: bool(attic.resumes), "its events are asked for")
            for sequence, event in ((3, tokens(9)), (4, done(3))):
                attic.say("r1", sequence, **event)
            numbered, _ = await rest_of(call)
            again = await refusal_of(resume(rig, "r1", 4))
        await attic.leave()

    assert attic.resumes[0].after_sequence == 2
    assert [event.sequence for event in numbered] == [3, 4]
    assert again.why is Reason.REPLY_NOT_FOUND


async def test_a_kept_reply_whose_ring_broke_meanwhile_is_not_found_and_goes_on_by_its_tokens(tmp_path):
    attic, kitchen = pair(**RESUMES)
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        await begin(rig, attic)
        await rig.kill()
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, kitchen):
        await attic.connect_only(rig.address)
        attic.open_inference_link(kept(attic, 1, 3))
        call = resume(rig, "r1", 2)
        await until(lambda: bool(attic.resumes), "its events are asked for")
        attic.say("r1", 3, **broke("the ring was wired anew"))
        refusal = await refusal_of(call)
        call = rig.generate(
            request_id="r1",
            sampling=generation_pb2.Sampling(seed=5),
            resume=generation_pb2.ReplyResume(ids=[7, 8], sequence=2),
        )
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **done(2))
        numbered, _ = await rest_of(call)
        await attic.leave()

    assert refusal.why is Reason.REPLY_NOT_FOUND
    assert attic.requests[1].generation.resume == generation_pb2.ReplyResume(ids=[7, 8], sequence=2)
    assert [event.sequence for event in numbered] == [3]


async def test_a_kept_reply_is_its_caller_s_alone(tmp_path):
    attic, kitchen = pair(**RESUMES)
    asked = inference_pb2.GenerateRequest(
        model_id=MODEL,
        request_id="r1",
        generation=generation_pb2.Generation(
            prompt="x",
            sampling=generation_pb2.Sampling(seed=5),
            resume=generation_pb2.ReplyResume(ids=[7], sequence=2),
        ),
    )
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=2)
        made = await TokenClient(rig.channel).make("admin")
        ann, bob = made.secret, (await TokenClient(rig.channel, made.secret).make("operate")).secret
        call = rig.inference.Generate(
            inference_pb2.GenerateRequest(model_id=MODEL, request_id="r1", generation={"prompt": "x"}),
            metadata=bearing(ann),
        )
        await until(lambda: bool(attic.requests), "the request arrives")
        attic.say("r1", 1, **started())
        assert (await call.read()).event.HasField("started")
        await rig.kill()
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, kitchen):
        await attic.connect_only(rig.address)
        attic.open_inference_link(kept(attic, 1, 2))
        await until(lambda: rig.leader.replies.kept("r1") is not None, "it is named")
        lost = await refusal_of(resume(rig, "r1", 1, bob))
        conflict = await refusal_of(rig.inference.Generate(asked, metadata=bearing(bob)))
        call = resume(rig, "r1", 1, ann)
        await until(lambda: bool(attic.resumes), "its events are asked for")
        attic.say("r1", 2, **done(0))
        numbered, _ = await rest_of(call)
        await attic.leave()

    assert attic.requests[0].owner == made.token.token_id
    assert (lost.why, conflict.why) == (Reason.REPLY_NOT_FOUND, Reason.CONFLICT)
    assert [event.sequence for event in numbered] == [2]


async def test_a_second_call_for_a_running_reply_takes_it_over_only_to_go_on(tmp_path):
    async with running_leader(tmp_path, hold_s=HOLD_S) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        events = await begin(rig, attic)
        conflict = await refusal_of(rig.generate(request_id="r1"))

        call = rig.generate(
            request_id="r1",
            sampling=generation_pb2.Sampling(seed=5),
            resume=generation_pb2.ReplyResume(ids=[7], sequence=2),
        )
        await until(lambda: len(attic.requests) == 2, "it is asked for again")
        attic.say("r1", 3, **done(2))
        numbered, _ = await rest_of(call)

        assert conflict.why is Reason.CONFLICT
        assert attic.cancels == ["r1"]
        assert (await refusal_of(events)).why is Reason.CANCELLED
        assert [event.sequence for event in numbered] == [3]


async def test_a_resume_that_makes_no_sense_is_refused(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, *pair(**RESUMES)) as (attic, _):
        await rig.load_ready(num_stages=2)
        seed = generation_pb2.Sampling(seed=5)
        wrong = [
            {"resume": generation_pb2.ReplyResume(ids=[7], sequence=1), "sampling": seed},
            {"resume": generation_pb2.ReplyResume(sequence=2**60), "sampling": seed},
            {"resume": generation_pb2.ReplyResume(ids=[7], sequence=2)},
            {"resume": generation_pb2.ReplyResume(ids=[1000], sequence=2), "sampling": seed},
            {"resume": generation_pb2.ReplyResume(ids=[7] * 513, sequence=2), "sampling": seed},
        ]
        refusals = [await refusal_of(rig.generate(**asked)) for asked in wrong]

        assert {refusal.why for refusal in refusals} == {Reason.BAD_REQUEST}
        assert [refusal.facts["field"] for refusal in refusals] == [
            "resume",
            "resume",
            "sampling.seed",
            "resume",
            "resume",
        ]
        assert attic.requests == []
        assert (await refusal_of(resume(rig, "", 1))).facts["field"] == "request_id"
