"""GET /metrics of a gateway: what is counted, under which labels, and that it needs nobody."""

import asyncio
import time

from prometheus_client.parser import text_string_to_metric_families
from silentswarm.core.v1 import generation_pb2
from swarm_core import errors

from tests.integration.gateway.scripted_leader import WAIT_S, done, started, tokens
from tests.integration.gateway.test_leaving import send_chat


async def figures(gateway) -> dict[tuple[str, ...], float]:
    """Every sample: its name and the values of its labels, labels by name -> its value."""
    async with gateway.client.get(gateway.url + "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


async def test_replies_are_counted_as_their_readers_see_them(gateway):
    async def cut(request):
        for event in (started(), tokens("a"), done(generation_pb2.FINISH_REASON_LENGTH)):
            yield event

    await gateway.chat(stream=True)
    await gateway.chat()
    gateway.leader.scripts["tiny"] = cut
    await gateway.chat(stream=True)
    seen = await figures(gateway)

    assert seen["silentswarm_gateway_replies_total", "stop", "tiny"] == 2
    assert seen["silentswarm_gateway_replies_total", "length", "tiny"] == 1
    assert seen["silentswarm_gateway_prompt_tokens_total", "tiny"] == 21
    assert seen["silentswarm_gateway_generation_tokens_total", "tiny"] == 7
    # Texts of streams only: two of the first, one of the last.
    assert seen["silentswarm_gateway_time_to_first_token_seconds_count", "tiny"] == 2
    assert seen["silentswarm_gateway_inter_token_latency_seconds_count", "tiny"] == 1
    assert seen["silentswarm_gateway_http_requests_total", "/v1/chat/completions", "2xx"] == 3
    assert seen[("silentswarm_gateway_streams_in_flight",)] == 0
    assert seen[("silentswarm_gateway_http_requests_in_flight",)] == 1  # this one


async def test_failures_and_readers_that_leave_are_counted_apart(gateway):
    async def breaks(request):
        yield started()
        yield tokens("half")
        raise errors.StageFailed("stage 1 died")

    async def lasts(request):
        yield started()
        yield tokens("a")
        await asyncio.sleep(WAIT_S)

    gateway.leader.scripts["tiny"] = breaks
    await gateway.chat(stream=True)
    await gateway.chat(messages=[])
    gateway.leader.scripts["tiny"] = lasts
    reader, writer = await send_chat(gateway, stream=True)
    await asyncio.wait_for(reader.readuntil(b'"content":"a"'), 5)
    running = await figures(gateway)
    gateway.leader.ended.clear()
    writer.close()
    await asyncio.wait_for(gateway.leader.ended.wait(), 5)
    seen = await figures(gateway)

    assert running[("silentswarm_gateway_streams_in_flight",)] == 1
    assert seen["silentswarm_gateway_replies_total", "error", "tiny"] == 1
    assert seen["silentswarm_gateway_replies_total", "error", ""] == 1
    assert seen["silentswarm_gateway_replies_total", "abort", "tiny"] == 1
    assert seen[("silentswarm_gateway_readers_gone_total",)] == 1
    assert seen["silentswarm_gateway_http_requests_total", "/v1/chat/completions", "4xx"] == 2  # 400, and 499
    assert seen[("silentswarm_gateway_streams_in_flight",)] == 0


async def test_no_client_makes_series_of_its_own(gateway):
    for word in ("nope-1", "nope-2"):
        await gateway.chat(model=word)
        await gateway.get(f"/nothing/{word}")
        await gateway.get(f"/v1/models/{word}")
    seen = await figures(gateway)

    assert not [key for key in seen if "nope" in "".join(key)]
    assert seen["silentswarm_gateway_http_requests_total", "none", "4xx"] == 2
    assert seen["silentswarm_gateway_http_requests_total", "/v1/models/{model=**}", "4xx"] == 2


async def test_it_answers_without_a_leader_at_once_and_when_every_place_is_taken(start_gateway):
    """To whoever the leader said may read, while it was there."""
    gateway = await start_gateway(requests_max=0)
    status, _ = await gateway.get("/v1/models")
    await gateway.leader_server.stop(0)
    took_s = []
    for _ in range(20):
        began_s = time.monotonic()
        seen = await figures(gateway)
        took_s.append(time.monotonic() - began_s)

    assert status == 429
    assert seen["silentswarm_gateway_http_requests_total", "/metrics", "2xx"] == 19
    assert min(took_s) < 0.05


async def test_scrapes_without_end_take_no_more_threads_than_a_few(gateway):
    async def scrape() -> int:
        async with gateway.client.get(f"{gateway.url}/metrics") as response:
            await response.read()
            return response.status

    statuses = await asyncio.gather(*(scrape() for _ in range(60)))

    assert set(statuses) == {200, 429}
    assert await scrape() == 200


async def test_the_event_loop_s_lag_is_measured(gateway):
    lag_count = ("silentswarm_gateway_event_loop_lag_seconds_count",)
    deadline_s = time.monotonic() + 5
    while (measured := (await figures(gateway))[lag_count]) < 1 and time.monotonic() < deadline_s:
        await asyncio.sleep(0.05)

    assert measured >= 1
