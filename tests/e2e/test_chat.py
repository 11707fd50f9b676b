"""A chat over two real stages of a real model, as a client of the gateway sees it."""

import json
import urllib.error
import urllib.request

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.e2e.conftest import MODEL
from tests.e2e.swarm import Swarm, is_alive

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def post(swarm: Swarm, path: str, body: dict, timeout_s: float = 120.0):
    """An open response; the caller reads it."""
    request = urllib.request.Request(
        swarm.http + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=timeout_s)


def get(swarm: Swarm, path: str) -> dict:
    with urllib.request.urlopen(swarm.http + path, timeout=30) as response:
        return json.load(response)


def ask(**more: object) -> dict:
    return {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 40, **more}


def read_stream(response) -> list[str]:
    """The payloads of a stream's events."""
    lines = (line.decode().rstrip("\n") for line in response)
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


def test_the_ready_file_names_every_process(chat_swarm):
    names = {"leader", "gateway", "fellow-1", "fellow-2", "stage-0@fellow-1", "stage-1@fellow-2"}

    assert set(chat_swarm.processes) == names
    assert all(is_alive(pid) for pid in chat_swarm.processes.values())


def test_the_capital_of_france_is_paris(chat_swarm):
    with post(chat_swarm, "/v1/chat/completions", ask()) as response:
        reply = json.load(response)

    assert "Paris" in reply["choices"][0]["message"]["content"]
    assert reply["choices"][0]["finish_reason"] == "stop"
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_stream_says_what_the_whole_reply_says(chat_swarm):
    with post(chat_swarm, "/v1/chat/completions", ask()) as response:
        whole = json.load(response)["choices"][0]["message"]["content"]
    with post(chat_swarm, "/v1/chat/completions", ask(stream=True)) as response:
        payloads = read_stream(response)
    chunks = [json.loads(payload) for payload in payloads[:-1]]

    assert payloads[-1] == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == whole
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"


def test_the_timing_names_every_stage_and_the_route(chat_swarm):
    with post(chat_swarm, "/v1/chat/completions", ask()) as response:
        timing = json.load(response)["swarm"]["timing"]

    assert timing["stage0_ms"] > 0 and timing["stage1_ms"] > 0
    assert timing["route"] == "direct"
    assert timing["bytes_per_token"] == pytest.approx(576 * 4, rel=0.2)


def test_a_seed_draws_the_same_text_again_and_another_seed_another(chat_swarm):
    def draw(seed: int) -> str:
        story = [{"role": "user", "content": "Tell me a story."}]
        body = ask(temperature=1.0, seed=seed, messages=story, max_tokens=16)
        with post(chat_swarm, "/v1/chat/completions", body) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    assert draw(7) == draw(7) != draw(8)


def test_an_unknown_model_is_a_404_that_names_what_exists(chat_swarm):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(chat_swarm, "/v1/chat/completions", ask(model="gpt-17"))
    error = json.load(refused.value)["error"]

    assert refused.value.code == 404
    assert error["code"] == "model_not_found" and MODEL in error["message"]


def test_a_prompt_beyond_the_context_is_a_400_with_both_numbers(chat_swarm):
    long = [{"role": "user", "content": "word " * 20_000}]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(chat_swarm, "/v1/chat/completions", ask(messages=long))
    error = json.load(refused.value)["error"]

    assert refused.value.code == 400
    assert error["code"] == "context_length_exceeded"
    assert "20," in error["message"].replace("20", "20,") and "4096" in error["message"].replace(",", "")


def test_models_and_json_routes_answer(chat_swarm):
    assert [model["id"] for model in get(chat_swarm, "/v1/models")["data"]] == [MODEL]
    assert get(chat_swarm, "/api/v1/ready")["ready"] is True
    assert get(chat_swarm, f"/api/v1/models/{MODEL}/status")["state"] == "PLACEMENT_STATE_READY"
    assert len(get(chat_swarm, "/api/v1/workers")["fellows"]) == 2
    assert get(chat_swarm, "/api/v1/cluster/devices")["devices"][0]["device"]["kind"] == "cpu"


def test_each_fellow_fetched_its_slice_and_hardly_more(chat_swarm):
    stages = get(chat_swarm, f"/api/v1/models/{MODEL}/status")["stages"]

    assert len(stages) == 2
    for stage in stages:
        assert 0 < int(stage["fetched_bytes"]) <= 1.05 * int(stage["weight_bytes"])


def test_the_cli_lists_infers_and_tells_where_a_model_is_served(chat_swarm):
    models = chat_swarm.cli("--json", "models")
    status = chat_swarm.cli("status")
    reply = chat_swarm.cli("infer", MODEL, "What is the capital of France?", "--temperature", 0)

    assert json.loads(models.stdout)["models"][0]["model_id"] == MODEL
    assert "fellow-1" in status.stdout and "fellow-2" in status.stdout
    assert "Paris" in reply.stdout and reply.returncode == 0


def test_generate_can_be_driven_with_nothing_but_reflection(chat_swarm):
    with grpc.insecure_channel(chat_swarm.grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        method = (
            DescriptorPool(database).FindServiceByName("silentswarm.leader.v1.Inference").methods_by_name["Generate"]
        )
        ask = {
            "model_id": MODEL,
            "generation": {
                "chat": {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
                "sampling": {"temperature": 0},
                "new_tokens_max": 30,
            },
        }
        request = json_format.ParseDict(ask, GetMessageClass(method.input_type)())
        generate = channel.unary_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        events = list(generate(request, timeout=60))
        services = database.get_services()

    assert "Paris" in "".join(event.event.tokens.text for event in events)
    assert [event.event.sequence for event in events] == list(range(1, len(events) + 1))
    assert {"grpc.health.v1.Health", "silentswarm.leader.v1.Models"} <= set(services)
