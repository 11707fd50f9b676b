"""A busy ring: callers take turns, hear how they stand, and leave nothing behind when they go."""

import asyncio
import contextlib
import time

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import Reason

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

Event = generation_pb2.GenerationEvent


@contextlib.asynccontextmanager
async def busy_ring(tmp_path, in_flight=1, **changes):
    """A ring whose replies end when the test says so."""
    async with (
        running_leader(tmp_path, in_flight=in_flight, **changes) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        yield rig, kitchen


def gate_of(rig):
    """The model's gate."""
    return rig.leader.gates.of(MODEL)


async def ask(rig, request_id, waiting, **generation):
    """Ask for a reply and see it counted among those that wait."""
    call = rig.generate(request_id=request_id, **generation)
    await until(lambda: gate_of(rig).waiting == waiting, f"{waiting} wait")
    return call


def end(kitchen, request_id):
    """The reply of a request is complete."""
    kitchen.say(request_id, 1, done=Event.Done(finish_reason=generation_pb2.FINISH_REASON_STOP))


async def test_who_waits_hears_where_it_stands_and_when_that_changes(tmp_path):
    async with busy_ring(tmp_path, in_flight=2) as (rig, kitchen):
        running = [rig.generate(request_id=f"r{number}") for number in range(2)]
        await until(lambda: len(kitchen.requests) == 2, "two run")
        first, second = await ask(rig, "w1", 1), await ask(rig, "w2", 2)

        told = [(await call.read()).event for call in (first, second)]

        assert [(event.sequence, event.queued.position) for event in told] == [(0, 1), (0, 2)]
        assert told[0].queued.reason == "2 of 2 places in this ring are taken"
        end(kitchen, "r0")
        assert (await second.read()).event.queued.position == 1
        await until(lambda: len(kitchen.requests) == 3, "the next runs")
        assert kitchen.requests[2].request_id == "w1"
        for call in (*running, first, second):
            call.cancel()


async def test_positions_are_told_at_most_once_a_second(tmp_path):
    async with busy_ring(tmp_path) as (rig, kitchen):
        running = rig.generate(request_id="r1")
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        ahead = [await ask(rig, f"w{number}", number + 1) for number in range(5)]
        last = await ask(rig, "last", 6)
        told_s = []
        positions = []

        async def listen():
            while (answer := await last.read()) is not grpc.aio.EOF and answer.event.HasField("queued"):
                told_s.append(time.monotonic())
                positions.append(answer.event.queued.position)

        listening = asyncio.create_task(listen())
        await until(lambda: positions == [6], "it hears its first position")
        for call in ahead:
            call.cancel()
        await until(lambda: positions[-1] == 1, "it hears its last position")

        assert len(positions) == 2  # five left within a moment: one word for all of them
        assert told_s[1] - told_s[0] > 0.9
        listening.cancel()
        running.cancel()
        last.cancel()


async def test_a_caller_that_comes_later_starts_before_the_second_of_one_that_waits_with_many(tmp_path):
    async with busy_ring(tmp_path) as (rig, kitchen):
        calls = [rig.generate(request_id="ann-0", caller="ann")]
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        calls += [await ask(rig, f"ann-{number}", number, caller="ann") for number in (1, 2, 3)]
        calls.append(await ask(rig, "bob-0", 4, caller="bob"))

        for request_id in ("ann-0", "bob-0", "ann-1", "ann-2", "ann-3"):
            await until(lambda wanted=request_id: kitchen.requests[-1].request_id == wanted, f"{request_id} runs")
            end(kitchen, request_id)

        assert [request.request_id for request in kitchen.requests] == ["ann-0", "bob-0", "ann-1", "ann-2", "ann-3"]
        for call in calls:
            call.cancel()


async def test_the_leader_alone_says_what_a_caller_weighs(tmp_path):
    async with busy_ring(tmp_path, in_flight=4, caller_weights="ann=3, bob=0.5") as (rig, kitchen):
        for number, caller in enumerate(("ann", "bob", "cat", "")):
            call = rig.generate(request_id=f"r{number}", caller=caller, caller_weight=900.0)
            await until(lambda count=number + 1: len(kitchen.requests) == count, "it runs")
            call.cancel()

        weights = [request.generation.caller_weight for request in kitchen.requests]
        assert weights == [3.0, 0.5, 1.0, 1.0]
        assert kitchen.requests[0].generation.caller == "ann"


async def test_one_caller_cannot_fill_the_queue_and_hears_when_to_come_again(tmp_path):
    async with busy_ring(tmp_path, queue_max=4) as (rig, kitchen):
        calls = [rig.generate(request_id="r0", caller="ann")]
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        calls += [await ask(rig, f"ann-{number}", number, caller="ann") for number in (1, 2, 3)]

        refused = rig.generate(caller="ann")
        refusal = await refusal_of(refused)

        assert refusal.why is Reason.OVERLOADED
        assert "3 replies of this caller wait" in refusal.message
        assert 1 <= int(refusal.facts["retry_after_s"]) <= 60
        status = await rpc_status.aio.from_call(refused)
        retries = [detail for detail in status.details if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)]
        retry = error_details_pb2.RetryInfo()
        assert retries[0].Unpack(retry)
        assert retry.retry_delay.seconds == int(refusal.facts["retry_after_s"])
        calls.append(await ask(rig, "bob-0", 4, caller="bob"))
        for call in calls:
            call.cancel()


async def test_a_caller_that_leaves_while_it_waits_makes_room_at_once(tmp_path):
    async with busy_ring(tmp_path, queue_max=1) as (rig, kitchen):
        running = rig.generate(request_id="r0")
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        waiting = await ask(rig, "w1", 1)
        assert (await waiting.read()).event.HasField("queued")

        waiting.cancel()

        await until(lambda: gate_of(rig).waiting == 0, "its place in the queue is free")
        again = await ask(rig, "w1", 1)  # under the same id, and the queue has room
        end(kitchen, "r0")
        await until(lambda: len(kitchen.requests) == 2, "it runs")
        assert kitchen.cancels == []
        for call in (running, again):
            call.cancel()


async def test_a_deadline_that_passes_in_the_queue_frees_the_place(tmp_path):
    async with busy_ring(tmp_path, request_timeout_s=0.8) as (rig, kitchen):
        running = rig.generate(request_id="r0")
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        waiting = rig.generate(request_id="w1")

        refusal = await refusal_of(waiting)

        assert refusal.why is Reason.DEADLINE
        assert gate_of(rig).waiting == 0
        running.cancel()


async def test_waiting_for_room_at_stage_0_is_told_as_it_comes_and_is_no_stall(tmp_path):
    """The heartbeats show no progress, and the ring is wired anew only for a reply that should make some."""
    async with busy_ring(tmp_path, progress_timeout_s=0.3) as (rig, kitchen):
        call = rig.generate(request_id="r1")
        await until(lambda: len(kitchen.requests) == 1, "the request arrives")
        kitchen.say("r1", 0, queued=Event.Queued(position=2, reason="waits for 300 tokens of KV"))
        answers = aiter(call)
        assert (await anext(answers)).event.queued.reason == "waits for 300 tokens of KV"
        status = await rig.get()
        assert (status.running, status.waiting) == (0, 1)
        for position in (1, 1, 1, 1):
            await asyncio.sleep(0.2)
            kitchen.say("r1", 0, queued=Event.Queued(position=position))
        kitchen.say("r1", 1, started=Event.Started(prompt_tokens=3))
        kitchen.say("r1", 0, queued=Event.Queued(position=1))  # out of date
        kitchen.say("r1", 2, done=Event.Done(finish_reason=generation_pb2.FINISH_REASON_STOP))

        events = [answer.event async for answer in answers]

        kinds = [event.WhichOneof("event") for event in events]
        assert kinds[-2:] == ["started", "done"]
        assert set(kinds[:-2]) == {"queued"}
        assert [event.sequence for event in events[-2:]] == [1, 2]
        assert kitchen.kinds().count("wire") == 1


async def test_those_that_wait_at_stage_0_start_before_those_at_the_gate(tmp_path):
    async with busy_ring(tmp_path, in_flight=2) as (rig, kitchen):
        calls = [rig.generate(request_id=f"r{number}") for number in range(2)]
        await until(lambda: len(kitchen.requests) == 2, "two have places")
        kitchen.say("r1", 0, queued=Event.Queued(position=1, reason="KV"))
        await until(lambda: gate_of(rig).waiting == 1, "one waits at stage 0")
        last = await ask(rig, "w1", 2)

        assert (await last.read()).event.queued.position == 2
        kitchen.say("r1", 1, started=Event.Started(prompt_tokens=3))
        assert (await last.read()).event.queued.position == 1
        for call in (*calls, last):
            call.cancel()


async def test_an_unload_tells_everybody_in_the_queue(tmp_path):
    async with busy_ring(tmp_path) as (rig, kitchen):
        running = rig.generate(request_id="r0")
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        waiting = [await ask(rig, f"w{number}", number) for number in (1, 2)]

        unloading = asyncio.create_task(rig.leader.loading.unload(MODEL))
        refusals = [await refusal_of(call) for call in (running, *waiting)]

        await unloading
        assert {refusal.why for refusal in refusals} == {Reason.MODEL_NOT_READY}
        assert (gate_of(rig).running, gate_of(rig).waiting) == (0, 0)
