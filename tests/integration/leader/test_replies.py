"""Replies: validated, queued fairly, bounded in time and in memory, and ended everywhere when the caller goes."""

import asyncio

import grpc
import pytest
from silentswarm.core.v1 import generation_pb2, reason_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc, serving_pb2
from swarm_core.errors import ModelNotReady, Reason
from swarm_leader.rpc.generations import GENERATION_BYTES_MAX
from swarm_rpc.channel import dial
from swarm_rpc.limits import MESSAGE_BYTES_MAX

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

Event = generation_pb2.GenerationEvent
Generation = generation_pb2.Generation


def started():
    """The first event."""
    return {"started": Event.Started(prompt_tokens=3, seed=1)}


def tokens(text):
    """Some text."""
    return {"tokens": Event.TokenBatch(text=text, ids=[1])}


def done():
    """The last event."""
    return {"done": Event.Done(finish_reason=generation_pb2.FINISH_REASON_STOP)}


async def test_events_arrive_in_order_and_end_with_done(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        ready = await rig.load_ready()

        events = [event async for event in rig.generate(request_id="mine-1", stop=["\n"])]

        assert [answer.event.sequence for answer in events] == [1, 2, 3, 4]
        assert [answer.event.WhichOneof("event") for answer in events] == ["started", "tokens", "tokens", "done"]
        assert text_of(events) == "Hi there"
        assert {answer.request_id for answer in events} == {"mine-1"}
        asked = kitchen.requests[0]
        assert (asked.request_id, asked.placement_id, asked.epoch) == ("mine-1", ready.placement_id, ready.epoch)
        assert list(asked.generation.stop) == ["\n"]
        assert asked.generation.sampling.HasField("seed")
        assert kitchen.cancels == []


async def test_a_seed_that_is_given_is_kept_and_others_differ(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()

        for sampling in ({"seed": 7}, {}, {}):
            _ = [event async for event in rig.generate(sampling=generation_pb2.Sampling(**sampling))]

        seeds = [request.generation.sampling.seed for request in kitchen.requests]
        assert seeds[0] == 7
        assert len(set(seeds)) == 3


@pytest.mark.parametrize(
    ("generation", "field"),
    [
        (Generation(), "input"),
        (Generation(prompt=""), "prompt"),
        (Generation(chat=generation_pb2.Chat()), "messages"),
        (
            Generation(chat=generation_pb2.Chat(messages=[generation_pb2.ChatMessage(role="robot", content="x")])),
            "messages[0].role",
        ),
        (Generation(prompt_ids=generation_pb2.TokenIds()), "prompt_ids"),
        (Generation(prompt_ids=generation_pb2.TokenIds(ids=[1000])), "prompt_ids"),
        (Generation(prompt="x", new_tokens_max=0), "new_tokens_max"),
        (Generation(prompt="x", sampling=generation_pb2.Sampling(temperature=-1)), "temperature"),
        (Generation(prompt="x", sampling=generation_pb2.Sampling(temperature=float("nan"))), "temperature"),
        (Generation(prompt="x", sampling=generation_pb2.Sampling(top_p=1.5)), "top_p"),
        (Generation(prompt="x", sampling=generation_pb2.Sampling(top_p=0)), "top_p"),
        (Generation(prompt="x", sampling=generation_pb2.Sampling(min_p=2)), "min_p"),
        (Generation(prompt="x", stop=["x"] * 17), "stop"),
        (Generation(prompt="x", stop=["x" * 257]), "stop"),
        (Generation(prompt="x", stop=[""]), "stop"),
        (Generation(prompt="x", caller="a b"), "caller"),
        (Generation(prompt="x", caller="a" * 65), "caller"),
    ],
)
async def test_a_generation_that_makes_no_sense_is_refused_with_its_field(tmp_path, generation, field):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        request = inference_pb2.GenerateRequest(model_id=MODEL, generation=generation)

        refusal = await refusal_of(rig.inference.Generate(request))

        assert (refusal.why, refusal.facts["field"]) == (Reason.BAD_REQUEST, field)
        assert kitchen.requests == []


async def test_models_that_do_not_exist_or_are_not_loaded_are_refused(tmp_path):
    async with running_leader(tmp_path) as rig:
        generation = Generation(prompt="x")
        unknown = await refusal_of(
            rig.inference.Generate(inference_pb2.GenerateRequest(model_id="nothing", generation=generation))
        )
        unloaded = await refusal_of(rig.generate())
        badly_named = await refusal_of(rig.generate(request_id="no spaces!"))

    assert (unknown.why, unknown.facts["available"]) == (Reason.MODEL_NOT_FOUND, MODEL)
    assert (unloaded.why, unloaded.facts["state"]) == (Reason.MODEL_NOT_READY, "unloaded")
    assert "swarm model-load tiny" in unloaded.message
    assert (badly_named.why, badly_named.facts["field"]) == (Reason.BAD_REQUEST, "request_id")


async def test_a_caller_that_leaves_ends_the_reply_on_the_fellow(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        kitchen.say("r1", 1, **started())
        assert (await call.read()).event.HasField("started")

        call.cancel()

        await until(lambda: kitchen.cancels == ["r1"], "the cancel arrives")
        await until(lambda: rig.leader.gates.of(MODEL).running == 0, "its place is free")


async def test_a_caller_that_leaves_while_events_pour_in_ends_the_reply_too(tmp_path):
    """The handler is then suspended in a write, where a generator does not hear of a cancel."""
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        for sequence in range(1, 400):
            kitchen.say("r1", sequence, **tokens("x" * 4000))
        await call.read()

        call.cancel()

        await until(lambda: kitchen.cancels == ["r1"], "the cancel arrives")
        await until(lambda: rig.leader.gates.of(MODEL).running == 0, "its place is free")
        assert rig.leader.replies.is_empty


async def test_a_caller_that_leaves_while_it_waits_gives_its_place_up(tmp_path):
    async with (
        running_leader(tmp_path, in_flight=1) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        first = rig.generate(request_id="r1")
        await until(lambda: len(kitchen.requests) == 1, "the first runs")
        second, third = rig.generate(request_id="r2"), rig.generate(request_id="r3")
        await until(lambda: rig.leader.gates.of(MODEL).waiting == 2, "two wait")
        status = await rig.get()
        assert (status.running, status.waiting) == (1, 2)

        second.cancel()
        await until(lambda: rig.leader.gates.of(MODEL).waiting == 1, "one waits")
        kitchen.say("r1", 1, **done())
        await until(lambda: len(kitchen.requests) == 2, "the next runs")
        kitchen.say("r3", 1, **done())

        ends = [[answer.event.WhichOneof("event") async for answer in call] for call in (first, third)]
        assert ends == [["done"], ["queued", "done"]]
        assert [request.request_id for request in kitchen.requests] == ["r1", "r3"]


async def test_more_than_may_wait_are_turned_away_with_the_numbers(tmp_path):
    async with (
        running_leader(tmp_path, in_flight=1, queue_max=1) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        calls = [rig.generate(request_id=f"r{number}") for number in range(2)]
        await until(lambda: rig.leader.gates.of(MODEL).waiting == 1, "one runs, one waits")

        refusal = await refusal_of(rig.generate())

        assert refusal.why is Reason.OVERLOADED
        numbers = ("running", "waiting", "waiting_max", "caller_waiting")
        assert [refusal.facts[number] for number in numbers] == ["1", "1", "1", "1"]
        for call in calls:
            call.cancel()


async def test_a_request_id_in_use_conflicts(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")

        refusal = await refusal_of(rig.generate(request_id="r1"))

        assert refusal.why is Reason.CONFLICT
        kitchen.say("r1", 1, **done())
        assert len([event async for event in call]) == 1


async def test_what_the_fellow_failed_it_for_reaches_the_caller(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        numbers = {"needed_tokens": "4312", "budget_tokens": "4096"}
        failed = Event.Failed(reason=reason_pb2.REASON_CONTEXT_TOO_LONG, message="too long", metadata=numbers)

        kitchen.say("r1", 1, failed=failed)

        refusal = await refusal_of(call)
        assert (refusal.why, refusal.message, refusal.facts) == (Reason.CONTEXT_TOO_LONG, "too long", numbers)
        assert (await rig.until_state("READY")).running == 0


async def test_a_gap_in_the_events_fails_the_reply_and_a_repeat_does_not(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        kitchen.say("r1", 1, **started())
        kitchen.say("r1", 1, **started())
        kitchen.say("r1", 2, **tokens("a"))
        events = aiter(call)
        assert [(await anext(events)).event.sequence for _ in range(2)] == [1, 2]

        kitchen.say("r1", 5, **tokens("b"))

        refusal = await refusal_of(events)
        assert (refusal.why, refusal.message) == (Reason.STAGE_FAILED, "events 3..4 of the reply never came")
        await until(lambda: kitchen.cancels == ["r1"], "the cancel arrives")


async def test_silence_ends_a_reply_and_names_the_fellow(tmp_path):
    async with (
        running_leader(tmp_path, progress_timeout_s=0.3) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None

        refusal = await refusal_of(rig.generate(request_id="r1"))

        assert refusal.why is Reason.DEADLINE
        assert refusal.message == "the reply made no progress within 0.3 s; waited for fellow kitchen"
        await until(lambda: kitchen.cancels == ["r1"], "the cancel arrives")


async def test_a_stage_that_computes_is_not_silent(tmp_path):
    """A long prompt gives no events; the positions of the heartbeats show that it goes on."""
    async with (
        running_leader(tmp_path, progress_timeout_s=1.0) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        held = next(iter(kitchen.held.values()))

        async def compute():
            for _ in range(9):
                held.status.positions += 256
                await asyncio.sleep(0.2)
            kitchen.say("r1", 1, **done())

        computing = asyncio.create_task(compute())
        assert len([event async for event in call]) == 1
        await computing


async def test_a_reply_that_never_ends_is_ended_by_the_deadline(tmp_path):
    async with (
        running_leader(tmp_path, request_timeout_s=0.5) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        kitchen.say("r1", 1, **started())

        refusal = await refusal_of(call)

        assert (refusal.why, "0.5 s" in refusal.message) == (Reason.DEADLINE, True)
        await until(lambda: kitchen.cancels == ["r1"], "the cancel arrives")


async def test_a_broken_inference_link_fails_its_replies_at_once_where_nothing_is_held(tmp_path):
    async with running_leader(tmp_path, hold_s=0) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")

        await kitchen.drop_inference_link()

        refusal = await refusal_of(call)
        assert refusal.why is Reason.FELLOW_LOST
        assert "fellow kitchen was lost during the reply" in refusal.message
        assert kitchen.is_connected


async def test_a_reader_that_falls_behind_is_cut_off(tmp_path):
    async with (
        running_leader(tmp_path, event_queue_max=8) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        call = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        # Read one event and no more, while far more than flow control and queue take come in.
        for sequence in range(1, 200):
            kitchen.say("r1", sequence, **tokens("x" * 100_000))
        events = aiter(call)
        await anext(events)

        await until(lambda: kitchen.cancels == ["r1"], "the reply is cut off")

        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [event async for event in events]
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_request_larger_than_a_link_takes_is_refused_and_costs_no_other_reply(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        running = rig.generate(request_id="r1")
        await until(lambda: bool(kitchen.requests), "the request arrives")
        roomy = dial(rig.address, 16 * 2**20)
        chat = generation_pb2.Chat(
            messages=[generation_pb2.ChatMessage(role="user", content="x" * (MESSAGE_BYTES_MAX - 2**10))]
        )
        stub = inference_pb2_grpc.InferenceStub(roomy)
        request = inference_pb2.GenerateRequest(model_id=MODEL, generation=generation_pb2.Generation(chat=chat))

        refusal = await refusal_of(stub.Generate(request))
        await roomy.close()

        assert (refusal.why, refusal.facts["field"]) == (Reason.BAD_REQUEST, "messages")
        assert "more than the 4,128,768" in refusal.message
        kitchen.say("r1", 1, **done())
        assert len([event async for event in running]) == 1


async def test_the_largest_request_reaches_the_fellow(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()

        events = [event async for event in rig.generate(prompt="x" * (GENERATION_BYTES_MAX - 16))]

        assert text_of(events) == "Hi there"
        assert len(kitchen.requests[0].generation.prompt) == GENERATION_BYTES_MAX - 16


@pytest.mark.parametrize(
    ("stage_count", "attic_reaches", "kitchen_reaches", "route"),
    [
        (1, True, True, "local"),
        (2, True, True, "direct"),
        (2, False, True, "mixed"),
        (2, False, False, "relay"),
    ],
)
async def test_done_says_which_way_the_ring_goes(tmp_path, stage_count, attic_reaches, kitchen_reaches, route):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    attic.reaches_directly, kitchen.reaches_directly = attic_reaches, kitchen_reaches
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        await rig.load_ready(num_stages=stage_count)

        events = [event async for event in rig.generate()]

        assert events[-1].event.done.timing.route == route


async def test_a_reply_is_watched_on_the_ring_it_began_on(tmp_path):
    """The model was loaded anew while the reply waited for the first stage's link."""
    async with (
        running_leader(tmp_path, progress_timeout_s=1.0) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        await kitchen.drop_inference_link()
        kitchen.replies_with = None
        with pytest.raises(ModelNotReady):
            while True:
                await rig.leader.replies.link_of(kitchen.registered.fellow_id, "kitchen", 0.05)
                await asyncio.sleep(0.01)  # a link that is there is given at once, and nothing else would run
        call = rig.generate(request_id="r1")
        await until(lambda: rig.leader.gates.of(MODEL).running == 1, "it waits for the link")
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        await rig.load_ready()
        kitchen.open_inference_link()
        await until(lambda: bool(kitchen.requests), "the request arrives")
        held = kitchen.held[kitchen.requests[0].placement_id]

        for _ in range(9):
            held.status.positions += 256
            await asyncio.sleep(0.2)
        kitchen.say("r1", 1, **done())

        assert len([event async for event in call]) == 1
