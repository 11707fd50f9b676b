"""What fails stays small: crashes, kills, impossible loads, callers who leave."""

import asyncio
import json
import os
import re
import shutil
import signal

import grpc
import psutil
import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc, serving_pb2, serving_pb2_grpc

from tests.e2e.conftest import MODEL, QUICK
from tests.e2e.swarm import is_alive, swarm_up, until, wait_for
from tests.e2e.test_chat import ask, get, post, read_stream

ENDLESS = {"max_tokens": 2000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def swarm(models_root, tmp_path_factory):
    """A swarm of its own that tests may hurt; it is served again at the start of each."""
    options = ("--fellows", 2, "--stages", 2, "--model", MODEL, "--model-dir", models_root)
    with swarm_up(tmp_path_factory.mktemp("failures"), *options, env=QUICK) as swarm:
        yield swarm


@pytest.fixture
def serving(swarm):
    loaded = swarm.cli("model-load", MODEL, "--num-stages", 2, "--wait")
    assert loaded.returncode == 0, loaded.stderr
    return swarm


def stage_pids(swarm) -> dict[str, int]:
    """Stage processes by fellow, as the kernel knows them."""
    found = {}
    for name in ("fellow-1", "fellow-2"):
        for child in psutil.Process(swarm.processes[name]).children():
            if "swarm_stage" in " ".join(child.cmdline()):
                found[name] = child.pid
    return found


# The first stage is killed by the chaos suite's matrix too.
@pytest.mark.parametrize("fellow", [pytest.param("fellow-1", marks=pytest.mark.slow), "fellow-2"])
def test_a_stage_that_crashes_in_mid_reply_is_loaded_again_and_the_reply_goes_on(serving, fellow):
    wanted = ask(max_tokens=48, ignore_eos=True, stream=True, temperature=0)
    with post(serving, "/v1/chat/completions", wanted) as response:
        unbroken = text_of(read_stream(response))
    placement = get(serving, f"/api/v1/models/{MODEL}/status")["placement_id"]
    response = post(serving, "/v1/chat/completions", wanted)
    begun = [response.readline().decode().strip() for _ in range(8)]
    os.kill(stage_pids(serving)[fellow], signal.SIGKILL)
    payloads = [line.removeprefix("data: ") for line in begun if line.startswith("data: ")] + read_stream(response)

    assert payloads[-1] == "[DONE]" and not any('"error"' in payload for payload in payloads)
    assert text_of(payloads) == unbroken
    after = get(serving, f"/api/v1/models/{MODEL}/status")
    assert (after["state"], after["placement_id"]) == ("PLACEMENT_STATE_READY", placement)
    assert all(is_alive(serving.processes[name]) for name in ("leader", "gateway", "fellow-1", "fellow-2"))


def text_of(payloads: list[str]) -> str:
    """The text of a stream's chunks."""
    chunks = [json.loads(payload) for payload in payloads if payload != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()))


def state_of(swarm) -> str:
    return get(swarm, f"/api/v1/models/{MODEL}/status")["state"]


async def test_a_caller_who_leaves_stops_every_stage_within_two_tokens(serving):
    async with grpc.aio.insecure_channel(serving.grpc) as channel:
        watch = serving_pb2_grpc.ServingStub(channel)

        async def live() -> list:
            status = await watch.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id=MODEL), timeout=10)
            return [stage.live for stage in status.stages]

        before = await live()
        generation = generation_pb2.Generation(
            prompt=("Count with me: one, two, three,"), new_tokens_max=2000, ignore_eos=True
        )
        request = inference_pb2.GenerateRequest(model_id=MODEL, generation=generation)
        call = inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60)
        prompt_tokens, tokens = 0, 0
        while tokens < 8:
            event = (await call.read()).event
            prompt_tokens = event.started.prompt_tokens or prompt_tokens
            tokens += len(event.tokens.ids)
        call.cancel()
        after = await until(lambda: settled(live), what="every stage at rest")

    for stage_before, stage_after in zip(before, after, strict=True):
        computed = stage_after.positions - stage_before.positions
        # The last token drawn was never fed back; two more may have been on their way.
        assert computed <= prompt_tokens + tokens - 1 + 2 + FLIGHT


FLIGHT = 2  # tokens drawn while the eighth event and the cancel travelled


async def settled(live) -> list | None:
    """The stages' figures once two looks, further apart than a heartbeat, agree that nothing runs."""
    first = await live()
    await asyncio.sleep(1.2)
    second = await live()
    same = [a.positions for a in first] == [b.positions for b in second]
    return second if same and not any(stage.sessions or stage.kv_tokens_used for stage in second) else None


def test_impossible_loads_are_refused_with_numbers_and_names_before_anything_loads(serving):
    serving.cli("model-unload", MODEL)
    too_few = serving.cli("model-load", MODEL, "--num-stages", 3)
    too_much = serving.cli("model-load", MODEL, "--num-stages", 31)
    unknown = serving.cli("model-load", "no-such-model")

    assert too_few.returncode == 1 and re.search(r"3\b.*\b2\b", too_few.stderr, re.S)
    assert "fellow-1" in too_few.stderr
    assert too_much.returncode == 2 and "31" in too_much.stderr and "30" in too_much.stderr
    assert unknown.returncode == 4 and MODEL in unknown.stderr
    assert stage_pids(serving) == {}


def test_too_little_memory_is_refused_with_numbers_and_names(models_root, tmp_path):
    options = ("--fellows", 2, "--no-model", "--model-dir", models_root)
    with swarm_up(tmp_path, *options, env={"SWARM_FELLOW_MEMORY_MB": "100"}) as swarm:
        refused = swarm.cli("model-load", MODEL, "--num-stages", 2)

    assert refused.returncode == 1
    assert "fellow-1" in refused.stderr and re.search(r"\d+(\.\d+)? ?(MB|MiB|GB|GiB)", refused.stderr)


def test_a_corrupt_servable_is_listed_with_its_reason(models_root, tmp_path):
    root = tmp_path / "models"
    (root / "broken" / "base").mkdir(parents=True)
    shutil.copy(models_root / MODEL / "servable.json", root / "broken" / "servable.json")
    with swarm_up(tmp_path / "data", "--fellows", 1, "--no-model", "--model-dir", root) as swarm:
        listed = json.loads(swarm.cli("--json", "models").stdout)["models"]
        refused = swarm.cli("model-load", listed[0]["model_id"])

    assert listed[0]["broken"]
    assert refused.returncode == 1 and listed[0]["broken"][:20] in refused.stderr


def test_an_idle_model_gives_its_memory_back_and_the_next_request_loads_it_again(models_root, tmp_path):
    options = ("--fellows", 1, "--stages", 1, "--model", MODEL, "--model-dir", models_root)
    # Long enough for a busy machine to see the loaded model wired and ready before its stage counts as idle.
    with swarm_up(tmp_path, *options, env={**QUICK, "SWARM_MODEL_IDLE_UNLOAD_S": "5"}) as swarm:
        stage = swarm.processes["stage-0@fellow-1"]
        wait_for(lambda: not is_alive(stage), what="the end of the idle stage")
        state = wait_for(lambda: state_of(swarm) == "PLACEMENT_STATE_IDLE", what="the idle state")
        with post(swarm, "/v1/chat/completions", ask()) as response:
            text = json.load(response)["choices"][0]["message"]["content"]

    assert state
    assert "Paris" in text


def test_nothing_is_left_when_a_swarm_ends(serving):
    """The last of these tests: it ends their swarm."""
    pids = serving.processes | stage_pids(serving)
    serving.process.stop(signal.SIGINT)

    assert [name for name, pid in pids.items() if is_alive(pid)] == []
