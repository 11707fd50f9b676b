"""/v1/models and the JSON routes of the leader's RPCs."""

import asyncio
import json

import pytest
from silentswarm.core.v1 import stage_pb2, weights_pb2
from silentswarm.leader.v1 import models_pb2, serving_pb2, status_pb2
from swarm_core import errors
from yarl import URL

from tests.integration.gateway.test_failures import assert_openai_error


async def test_the_list_shows_what_can_be_served(gateway):
    status, document = await gateway.get("/v1/models")

    assert status == 200
    assert document == {
        "object": "list",
        "data": [
            {
                "id": "tiny",
                "object": "model",
                "created": 1_700_000_000,
                "owned_by": "silentswarm",
                "swarm": {"state": "ready"},
                "max_model_len": 2048,
            },
            {
                "id": "org/tiny",
                "object": "model",
                "created": 1_700_000_001,
                "owned_by": "silentswarm",
                "swarm": {"state": "idle"},
            },
        ],
    }


@pytest.mark.parametrize(
    ("state", "shown"),
    [("READY", 512), ("LOADING", 512), ("IDLE", 512), ("FAILED", 2048), ("UNLOADED", 2048)],
)
async def test_the_longest_conversation_is_the_served_one_while_a_model_is_served(gateway, state, shown):
    number = serving_pb2.PlacementState.Value(f"PLACEMENT_STATE_{state}")
    gateway.leader.serving = [serving_pb2.ModelStatus(model_id="tiny", state=number, context_tokens=512)]

    _, listed = await gateway.get("/v1/models")
    _, one = await gateway.get("/v1/models/tiny")

    assert listed["data"][0]["max_model_len"] == one["max_model_len"] == shown
    assert "max_model_len" not in listed["data"][1]


async def test_an_adapter_is_listed_with_its_base_and_takes_what_the_ring_takes_that_holds_it(gateway):
    """parent and root as vLLM has them for LoRA modules; whole models have neither."""
    of_tiny = models_pb2.Adapter(base_model_id="tiny", rank=8, targets=["q_proj"])
    for model_id, source in (("ann/pirate", "ann/pirate-lora"), ("poet", ""), ("bard", "/home/ann/bard")):
        adapter = models_pb2.Model(
            model_id=model_id, created_s=5, context_tokens_max=2048, source=source, state="ready", adapter=of_tiny
        )
        gateway.leader.models.append(adapter)
    gateway.leader.serving = [
        serving_pb2.ModelStatus(
            model_id="tiny", state=serving_pb2.PLACEMENT_STATE_READY, context_tokens=512, adapters=["ann/pirate"]
        )
    ]

    _, listed = await gateway.get("/v1/models")
    _, shown = await gateway.get("/v1/models/ann/pirate")

    by_id = {model["id"]: model for model in listed["data"]}
    assert by_id["ann/pirate"] == shown
    assert shown == {
        "id": "ann/pirate",
        "object": "model",
        "created": 5,
        "owned_by": "silentswarm",
        "swarm": {"state": "ready"},
        "max_model_len": 512,
        "root": "ann/pirate-lora",
        "parent": "tiny",
    }
    assert (by_id["poet"]["root"], by_id["poet"]["parent"], by_id["poet"]["max_model_len"]) == ("poet", "tiny", 2048)
    assert by_id["bard"]["root"] == "bard"  # where it lies on the leader's disk is not told
    assert not {"root", "parent"} & set(by_id["tiny"])


@pytest.mark.parametrize("path", ["org/tiny", "org%2Ftiny", "org%2ftiny", "org/tiny/"])
async def test_a_model_with_a_slash_is_found_however_it_is_written(gateway, path):
    for prefix, key in (("/v1/models/", "id"), ("/api/v1/models/", "model_id")):
        async with gateway.client.get(URL(gateway.url + prefix + path, encoded=True)) as response:
            document = await response.json()
        assert (response.status, document[key]) == (200, "org/tiny")


async def test_a_model_that_is_not_there_or_damaged_says_so(gateway):
    missing_status, missing = await gateway.get("/v1/models/org/nope")
    broken_status, broken = await gateway.get("/v1/models/broken")

    assert missing_status == 404
    assert_openai_error(missing, code="model_not_found")
    assert broken_status == 409
    assert_openai_error(broken, code="servable_corrupt")
    assert "cut short" in broken["error"]["message"]


async def test_a_rpc_answers_as_json_with_every_field(gateway):
    status, document = await gateway.get("/api/v1/models/org/tiny/status")

    assert status == 200
    assert document["model_id"] == "org/tiny"
    assert document["epoch"] == str(2**63)  # 64-bit numbers are strings in proto3 JSON
    assert document["state"] == "PLACEMENT_STATE_UNSPECIFIED"
    assert document["stages"] == [] and document["notes"] == []
    assert "probe_lap_ms" not in document  # unknown is not zero


async def test_a_load_reads_path_and_body(gateway):
    body = {"num_stages": 2, "transport": "TRANSPORT_TUNNEL", "fellow_ids": ["a", "b"]}
    async with gateway.client.post(gateway.url + "/api/v1/models/org%2Ftiny/load", json=body) as response:
        assert response.status == 200
    async with gateway.client.post(gateway.url + "/api/v1/models/tiny/load") as response:
        assert response.status == 200

    assert gateway.leader.loads == [
        serving_pb2.LoadModelRequest(
            model_id="org/tiny", num_stages=2, transport=stage_pb2.TRANSPORT_TUNNEL, fellow_ids=["a", "b"]
        ),
        serving_pb2.LoadModelRequest(model_id="tiny"),
    ]


@pytest.mark.parametrize(
    ("quantization", "asked"),
    [
        ({"method": "nf4"}, weights_pb2.Quantization(method="nf4")),
        ({"bits": 8}, weights_pb2.Quantization(bits=8)),
        ({"method": "none"}, weights_pb2.Quantization(method="none")),
        ({"bits": 4, "backend": "torchao"}, weights_pb2.Quantization(bits=4, backend="torchao")),
    ],
)
async def test_a_load_says_in_json_how_weights_are_held(gateway, quantization, asked):
    body = {"quantization": quantization, "adapters": ["ann/pirate", "*"], "codec": "int8"}
    async with gateway.client.post(gateway.url + "/api/v1/models/tiny/load", json=body) as response:
        assert response.status == 200

    assert gateway.leader.loads == [
        serving_pb2.LoadModelRequest(model_id="tiny", quantization=asked, adapters=["ann/pirate", "*"], codec="int8")
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"num_stage": 2}', "num_stage"),
        (b'{"num_stages": "two"}', "num_stages"),
        (b'{"quantization": {"bit": 4}}', "quantization"),
        (b'{"quantization": "nf4"}', "quantization"),
        (b"[]", "body"),
        (b"{", "body"),
    ],
)
async def test_a_wrong_body_is_400_and_names_the_field(gateway, body, field):
    async with gateway.client.post(gateway.url + "/api/v1/models/tiny/load", data=body) as response:
        document = await response.json()

    assert response.status == 400
    assert document["error"]["param"] == field
    assert document["error"]["code"] == "bad_request"


async def test_a_refused_load_shows_the_numbers(gateway):
    gateway.leader.failure = errors.NotEnoughMemory("needs 9, has 4", needed_bytes=9, available_bytes=4)
    async with gateway.client.post(gateway.url + "/api/v1/models/tiny/load") as response:
        document = await response.json()

    assert response.status == 409
    assert document["error"]["code"] == "not_enough_memory"
    assert document["error"]["metadata"] == {"needed_bytes": "9", "available_bytes": "4"}


async def test_ready_is_503_with_the_reasons_while_it_is_not(gateway):
    assert await gateway.get("/api/v1/ready") == (200, {"ready": True, "reasons": []})
    assert await gateway.get("/api/v1/health") == (200, {"version": "1.2.3", "uptime_s": 4.5})

    gateway.leader.ready = status_pb2.GetReadyResponse(ready=False, reasons=["starting"])

    assert await gateway.get("/api/v1/ready") == (503, {"ready": False, "reasons": ["starting"]})


def _status(state: int) -> serving_pb2.ModelStatus:
    return serving_pb2.ModelStatus(model_id="org/tiny", state=state)


async def test_a_server_stream_is_one_event_a_message(start_gateway):
    gateway = await start_gateway(keep_alive_s=0.05)
    gateway.leader.statuses = [_status(2), 0.2, _status(4)]
    async with gateway.client.get(gateway.url + "/api/v1/models/org/tiny/status/stream") as response:
        text = await response.text()

    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: ")]
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert [event["state"] for event in events] == ["PLACEMENT_STATE_LOADING", "PLACEMENT_STATE_READY"]
    assert ": keep-alive\n\n" in text
    assert text.endswith("\n\n") and "event:" not in text


async def test_a_stream_that_fails_says_so_before_and_after_its_start(gateway):
    url = gateway.url + "/api/v1/models/tiny/status/stream"
    gateway.leader.statuses = [errors.ModelNotFound("no model 'tiny'")]
    async with gateway.client.get(url) as response:
        assert response.status == 404
    gateway.leader.statuses = [_status(2), errors.FellowLost("anna is gone")]
    async with gateway.client.get(url) as response:
        text = await response.text()

    last = text.split("\n\n")[-2]
    assert response.status == 200
    assert last.startswith("event: error\ndata: ")
    assert json.loads(last.partition("data: ")[2])["error"]["code"] == "fellow_lost"


async def test_a_watcher_that_leaves_is_no_longer_served(gateway):
    gateway.leader.statuses = [_status(2), 30.0]
    async with gateway.client.get(gateway.url + "/api/v1/models/tiny/status/stream") as response:
        await response.content.readany()
        was_served = not gateway.leader.ended.is_set()
        response.close()

    assert was_served
    assert await asyncio.wait_for(gateway.leader.ended.wait(), 1)


async def test_the_openapi_document_lists_the_routes_that_are_served(gateway):
    status, document = await gateway.get("/api/v1/openapi.json")

    assert status == 200
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]["/api/v1/models/{model_id}/load"]) == {"post"}
    assert "text/event-stream" in json.dumps(document["paths"]["/api/v1/models/{model_id}/status/stream"])
