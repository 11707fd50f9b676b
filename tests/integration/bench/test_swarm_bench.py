"""`swarm bench` as a user runs it, against a scripted gateway: what it asks, prints and exits with."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.integration.bench.scripted_gateway import ScriptedGateway, serve

RUN_S = 30


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    scripted = ScriptedGateway()
    async with serve(scripted) as url:
        scripted.url = url
        yield scripted


@asynccontextmanager
async def started(gateway: ScriptedGateway, *arguments: str, **environ: str):
    """The command, running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "swarm_cli", "bench", *arguments),
        env={**os.environ, "SWARM_GATEWAY_URL": gateway.url, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(gateway: ScriptedGateway, *arguments: str, **environ: str) -> Ended:
    """The command, to its end."""
    async with started(gateway, *arguments, **environ) as process, asyncio.timeout(RUN_S):
        out, err = await process.communicate()
        return Ended(process.returncode, out.decode(), err.decode())


async def test_it_keeps_so_many_streams_going_and_counts_every_token(gateway):
    ended = await run(gateway, "--streams", "3", "--requests", "9", "--new-tokens", "10", "--json")
    figures = json.loads(ended.out)

    assert ended.code == 0, ended.err
    assert (figures["requests"], figures["whole"], figures["failures"]) == (9, 9, {})
    assert figures["new_tokens"] == 90
    assert figures["asked"]["model"] == "tiny"  # the only one that is ready
    assert len(gateway.measured) == 9
    assert gateway.most == 3
    assert figures["between"]["p50"] >= 2.0
    assert figures["longest_gap_ms"] >= figures["between"]["p99"] >= figures["between"]["p50"]
    assert figures["server"]["stage1_ms"] == 3.5
    assert figures["routes"] == {"direct": 9}


async def test_replies_are_comparable_greedy_and_of_one_length(gateway):
    await run(gateway, "--streams", "2", "--requests", "4", "--new-tokens", "7", SWARM_API_KEY="secret")

    for body in gateway.measured:
        assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"], body["temperature"]) == (7, 7, True, 0)
        assert body["stream"] and body["stream_options"] == {"include_usage": True}
    assert set(gateway.tokens_given) == {"Bearer secret"}


async def test_prompts_have_the_length_asked_for_template_included_and_all_differ(gateway):
    ended = await run(gateway, "--prompt-tokens", "60", "--requests", "5", "--new-tokens", "2", "--json")
    prompts = [body["messages"][0]["content"] for body in gateway.measured]

    assert json.loads(ended.out)["prompt_tokens_mean"] == 60
    assert len(set(prompts)) == 5


async def test_people_read_how_fast_how_evenly_and_where_the_time_went(gateway):
    ended = await run(gateway, "--requests", "4", "--new-tokens", "5")

    assert "\x1b" not in ended.out
    lines = {line.split("  ")[0]: line for line in ended.out.splitlines()}
    assert ended.out.splitlines()[0].startswith("4 of 4 replies whole in ")
    assert lines["first token"].count(" ms") == 4
    assert lines["between tokens"].count(" ms") == 4
    assert "in all" in lines["tokens/s"] and "per stream" in lines["tokens/s"]
    assert lines["failures"].endswith("none")
    assert "queue 1.50 ms, prefill 20.0 ms" in lines["server, a reply"]
    assert "stage 0 2.50 ms, stage 1 3.50 ms, links 0.50 ms" in lines["server, a token"]
    assert "tiny at http://" in ended.err


async def test_failures_are_counted_by_reason_and_do_not_end_the_run(gateway):
    gateway.refuse_every, gateway.break_every = 5, 4
    ended = await run(gateway, "--streams", "4", "--requests", "10", "--new-tokens", "4", "--json")
    figures = json.loads(ended.out)

    assert figures["failures"] == {"overloaded": 2, "stage_failed": 2}
    assert figures["whole"] == 6
    assert "8 requests wait already" in ended.err and "stage 1 is gone" in ended.err
    assert ended.code == 0


async def test_a_run_without_one_whole_reply_has_failed(gateway):
    gateway.refuse_every = 1
    ended = await run(gateway, "--streams", "1", "--requests", "2", "--new-tokens", "4")

    assert ended.code == 1
    assert "2 overloaded" in ended.out


async def test_a_duration_ends_it_and_what_runs_then_is_cut(gateway):
    gateway.gap_s = 0.05
    ended = await run(gateway, "--streams", "2", "--duration", "1", "--new-tokens", "1000", "--json")
    figures = json.loads(ended.out)

    assert (figures["whole"], figures["cut"], figures["failures"]) == (0, 2, {})
    assert 0.9 < figures["duration_s"] < 5
    assert figures["new_tokens"] >= 10


async def test_ctrl_c_prints_what_there_is(gateway):
    gateway.gap_s = 0.02
    arguments = ("--streams", "2", "--requests", "1000", "--new-tokens", "8", "--json")
    async with started(gateway, *arguments) as process, asyncio.timeout(RUN_S):
        while len(gateway.measured) < 6:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    figures = json.loads(out)

    assert process.returncode == 130, err
    assert figures["whole"] >= 4
    assert figures["cut"] == 2
    assert figures["tokens_per_s"] > 0


async def test_an_address_where_nothing_answers_is_said_with_its_fix(gateway):
    ended = await run(gateway, "--url", "http://127.0.0.1:1")

    assert ended.code == 3
    assert "nothing answers at http://127.0.0.1:1" in ended.err and "SWARM_GATEWAY_URL" in ended.err


async def test_a_model_that_is_not_there_is_said_with_those_that_are(gateway):
    ended = await run(gateway, "--model", "big")

    assert ended.code == 4
    assert "tiny, other" in ended.err


async def test_several_ready_models_need_a_choice(gateway):
    gateway.models = [{"id": "a"}, {"id": "b"}]
    ended = await run(gateway)

    assert ended.code == 1
    assert "--model must say which: a, b" in ended.err
