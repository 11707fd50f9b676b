"""How a model was served lately, over the rpc and for Prometheus: the same replies, counted once."""

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from silentswarm.core.v1 import generation_pb2, reason_pb2, stage_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import Reason
from swarm_leader.domain.histogram import ERROR
from swarm_leader.metrics.answer import answering_metrics

from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until, write_servable
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined
from tests.unit.leader.model_facts import make_manifest

Event = generation_pb2.GenerationEvent
TIMING = generation_pb2.Timing(
    queue_ms=20.0,
    prefill_ms=100.0,
    stage_ms=[8.0, 6.0],
    wait_ms=2.0,
    link_ms=3.0,
    sample_ms=0.5,
    detokenize_ms=1.0,
    bytes_per_token=4096.0,
    batch_mean=1.5,
)
DONE = Event.Done(
    finish_reason=generation_pb2.FINISH_REASON_LENGTH, prompt_tokens=12, completion_tokens=3, timing=TIMING
)


async def performance_of(rig, model_id=MODEL):
    """The answer of GetPerformance."""
    return await rig.serving.GetPerformance(serving_pb2.GetPerformanceRequest(model_id=model_id))


async def scrape(port: int) -> dict[tuple[str, str], float]:
    """Every sample by its name and its last label."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return answer.read().decode()

    return dict(_samples(await asyncio.to_thread(read)))


def _samples(text: str) -> Iterator[tuple[tuple[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {name: label for name, label in sample.labels.items() if name != "model_name"}
            yield (sample.name, next(iter(labels.values()), "")), sample.value


async def reply(rig, kitchen, request_id, end):
    """One reply of three tokens, one of them alone and two together, that ends as `end` says."""
    call = rig.generate(request_id=request_id)
    await until(lambda: bool(kitchen.requests) and kitchen.requests[-1].request_id == request_id, "it arrives")
    kitchen.say(request_id, 1, started=Event.Started(prompt_tokens=12))
    kitchen.say(request_id, 2, tokens=Event.TokenBatch(text="a", ids=[1]))
    answers = aiter(call)
    for _ in range(2):
        await anext(answers)
    await asyncio.sleep(0.1)
    kitchen.say(request_id, 3, tokens=Event.TokenBatch(text="bc", ids=[2, 3]))
    kitchen.say(request_id, 4, **end)
    return answers


async def test_a_model_that_was_never_served_has_empty_figures_and_one_that_does_not_exist_is_refused(tmp_path):
    async with running_leader(tmp_path) as rig:
        empty = await performance_of(rig)
        refused = await refusal_of(rig.serving.GetPerformance(serving_pb2.GetPerformanceRequest(model_id="nothing")))

        assert (empty.model_id, empty.completed, list(empty.stages)) == (MODEL, 0, [])
        assert not any(empty.HasField(part) for part in ("first_token", "inter_token", "split"))
        assert refused.why is Reason.MODEL_NOT_FOUND


async def test_a_reply_shows_in_speed_spread_and_split(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        kitchen.replies_with = None
        answers = await reply(rig, kitchen, "r1", {"done": DONE})
        assert [answer.event.WhichOneof("event") async for answer in answers] == ["tokens", "done"]

        found = await performance_of(rig)

        assert (found.completed, found.prompt_tokens, found.generated_tokens) == (1, 12, 3)
        assert (found.running, found.waiting, found.failed) == (0, 0, 0)
        assert found.inter_token.p50_ms >= 100 / 2 * (1 - ERROR)  # the second and third came together
        assert 0 < found.first_token.p50_ms < 10_000
        assert 3 / 10 < found.tokens_per_s < 3 / 0.09
        assert found.split.queue_ms >= 20.0
        assert (found.split.prefill_ms, list(found.split.stage_ms), found.split.link_ms) == (100.0, [8.0, 6.0], 3.0)
        assert (found.split.batch_mean, found.split.bytes_per_token) == (1.5, 4096.0)


async def test_failed_too_long_cancelled_and_completed_are_told_apart(tmp_path):
    """Also for Prometheus."""
    async with (
        running_leader(tmp_path) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
        answering_metrics("127.0.0.1:0", rig.leader.metrics) as port,
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        ends = {
            "long": {"failed": Event.Failed(reason=reason_pb2.REASON_CONTEXT_TOO_LONG, message="too long")},
            "broken": {"failed": Event.Failed(reason=reason_pb2.REASON_STAGE_FAILED, message="broken")},
        }
        for request_id, end in ends.items():
            await refusal_of(await reply(rig, kitchen, request_id, end))
        _ = [answer async for answer in await reply(rig, kitchen, "well", {"done": DONE})]
        left = rig.generate(request_id="left")
        await until(lambda: kitchen.requests[-1].request_id == "left", "it arrives")
        left.cancel()
        await until(lambda: kitchen.cancels == ["left"], "the cancel arrives")
        await refusal_of(rig.generate(prompt=""))

        found = await performance_of(rig)
        samples = await scrape(port)

        assert (found.completed, found.failed, found.too_long, found.cancelled) == (1, 1, 1, 1)
        assert samples["silentswarm_request_success_total", "length"] == 1
        assert samples["silentswarm_request_success_total", "abort"] == 1
        assert samples["silentswarm_request_failure_total", "CONTEXT_TOO_LONG"] == 1
        assert samples["silentswarm_request_failure_total", "STAGE_FAILED"] == 1
        assert samples["silentswarm_generation_tokens_total", ""] == 9
        assert samples["silentswarm_prompt_tokens_total", ""] == 36
        assert samples["silentswarm_inter_token_latency_seconds_count", ""] == 6
        for duration in ("e2e_request_latency", "request_decode_time"):
            assert samples[f"silentswarm_{duration}_seconds_count", ""] == 1
        for duration in ("time_to_first_token", "request_queue_time", "request_prefill_time"):
            assert samples[f"silentswarm_{duration}_seconds_count", ""] == 3


async def test_who_is_turned_away_is_no_failed_reply(tmp_path):
    """Counted apart, so that a busy model does not look broken; for Prometheus under its reason, as every refusal."""
    async with (
        running_leader(tmp_path, in_flight=1, queue_max=1) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
        answering_metrics("127.0.0.1:0", rig.leader.metrics) as port,
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        running = rig.generate(request_id="running")
        await until(lambda: len(kitchen.requests) == 1, "one runs")
        waiting = aiter(rig.generate(request_id="waiting"))
        await anext(waiting)
        full = await refusal_of(rig.generate(request_id="one-more"))
        await rig.serving.UnloadModel(serving_pb2.UnloadModelRequest(model_id=MODEL))
        gone = [await refusal_of(call) for call in (running, waiting, rig.generate(request_id="late"))]

        found = await performance_of(rig)
        samples = await scrape(port)

    assert [full.why, *(each.why for each in gone)] == [Reason.OVERLOADED, *[Reason.MODEL_NOT_READY] * 3]
    assert (found.turned_away, found.failed) == (3, 1)
    assert samples["silentswarm_request_failure_total", "OVERLOADED"] == 1
    assert samples["silentswarm_request_failure_total", "MODEL_NOT_READY"] == 3


async def test_stages_say_how_busy_they_are_and_what_kv_they_hold(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 3 * 10**9), ScriptedFellow("kitchen", 2 * 10**9)
    async with (
        running_leader(tmp_path) as rig,
        joined(rig.address, attic, kitchen),
        answering_metrics("127.0.0.1:0", rig.leader.metrics) as port,
    ):
        await rig.load_ready(num_stages=2)
        for loaded_s, busy_s in ((10.0, 4.0), (20.0, 9.0)):
            status = next(iter(attic.held.values())).status
            status.loaded_s, status.busy_s = loaded_s, busy_s
            status.kv_tokens_used, status.kv_tokens_max = 250, 1000
            attic.beat()
            placement_id = status.spec.placement_id

            def is_told(loaded_s=loaded_s, placement_id=placement_id):
                told = rig.leader.registry.status_of(attic.registered.fellow_id, placement_id)
                return told is not None and told.loaded_s == loaded_s

            await until(is_told, "the heartbeat is taken")

        found = await performance_of(rig)
        samples = await scrape(port)

        first, second = found.stages
        assert (first.fellow_name, list(first.devices), first.layer_start, first.layer_stop) == (
            "attic",
            ["scripted"],
            0,
            second.layer_start,
        )
        assert first.route == stage_pb2.ROUTE_DIRECT
        assert first.busy_share == pytest.approx(0.5)
        assert (first.kv_tokens_used, first.kv_tokens_max) == (250, 1000)
        assert not second.HasField("busy_share")
        assert samples["silentswarm_kv_cache_usage_perc", ""] == pytest.approx(0.25)
        assert samples["silentswarm_fellows", "connected"] == 2
        assert samples["silentswarm_num_requests_running", ""] == 0
        assert samples["silentswarm_relay_lanes", ""] == 0


async def test_what_waits_at_the_gate_and_a_lost_fellow_show_in_the_gauges(tmp_path):
    async with (
        running_leader(tmp_path, in_flight=1) as rig,
        joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,),
        answering_metrics("127.0.0.1:0", rig.leader.metrics) as port,
    ):
        await rig.load_ready()
        kitchen.replies_with = None
        calls = [rig.generate(request_id=f"r{number}") for number in range(3)]
        await until(lambda: rig.leader.gates.of(MODEL).waiting == 2, "two wait")

        busy = await scrape(port)
        found = await performance_of(rig)
        kitchen.beats = False
        await until(lambda: rig.leader.registry.leases.lost_count == 1, "its lease runs out")
        lost = await scrape(port)

        assert (busy["silentswarm_num_requests_running", ""], busy["silentswarm_num_requests_waiting", ""]) == (1, 2)
        assert (found.running, found.waiting) == (1, 2)
        assert lost["silentswarm_leases_lost_total", ""] == 1
        assert lost["silentswarm_fellows", "connected"] == 0
        for call in calls:
            call.cancel()


@contextlib.asynccontextmanager
async def gateway(leader: str) -> AsyncIterator[str]:
    """A gateway process in front of a leader; its URL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWARM_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "swarm_gateway", "--port", "0"),
        env={**clean, "SWARM_LEADER": leader, "SWARM_LOG_JSON": "1"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            while b'"listening"' not in (line := await process.stderr.readline()):
                assert line, "the gateway ended"
        yield json.loads(line)["url"].removesuffix("/v1")
    finally:
        process.kill()
        await process.wait()


async def test_the_route_answers_for_a_model_with_a_slash_in_its_id(tmp_path):
    """Through a real gateway: the path of the annotation, the JSON of the message, 404 for a model nobody has."""
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        write_servable(rig.leader.config.models_root, make_manifest(context_tokens_max=512), "org/tiny")
        await rig.load_ready()
        _ = [event async for event in rig.generate()]
        async with gateway(rig.address) as url:

            def get(model_id: str) -> tuple[int, dict]:
                try:
                    with urllib.request.urlopen(f"{url}/api/v1/models/{model_id}/performance", timeout=10) as answer:
                        return answer.status, json.load(answer)
                except urllib.error.HTTPError as error:
                    return error.code, json.load(error)

            served, slashed, unknown = [await asyncio.to_thread(get, name) for name in (MODEL, "org/tiny", "org/none")]

        assert served[0] == 200
        assert (served[1]["completed"], served[1]["stages"][0]["fellow_name"]) == (1, "kitchen")
        assert (slashed[0], slashed[1]["model_id"]) == (200, "org/tiny")
        assert (unknown[0], unknown[1]["error"]["code"]) == (404, "model_not_found")
