"""HTTP itself: bodies too large or broken, paths that are not there, methods that are not taken."""

import gzip

import pytest

from tests.integration.gateway.test_failures import assert_openai_error

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"temperature": NaN}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
    ],
)
async def test_a_body_that_is_not_a_json_object_is_400(gateway, body, words):
    async with gateway.client.post(gateway.url + CHAT, data=body) as response:
        document = await response.json()

    assert response.status == 400
    assert_openai_error(document, code="invalid_json", type="invalid_request_error")
    assert words in document["error"]["message"]


async def test_a_body_too_large_is_413_announced_or_not(start_gateway):
    gateway = await start_gateway(max_body_mb=1)

    async def pieces():
        for _ in range(40):
            yield b" " * 65_536

    for body in (b" " * (2**20 + 1), pieces()):
        async with gateway.client.post(gateway.url + CHAT, data=body) as response:
            document = await response.json()
        assert response.status == 413
        assert_openai_error(document, code="request_too_large")
        assert response.headers["x-request-id"]


async def test_a_small_body_that_unpacks_beyond_the_limit_is_413(start_gateway):
    gateway = await start_gateway(max_body_mb=1)
    packed = gzip.compress(b" " * (8 * 2**20))

    headers = {"Content-Encoding": "gzip"}
    async with gateway.client.post(gateway.url + CHAT, data=packed, headers=headers) as response:
        document = await response.json()

    assert response.status == 413
    assert_openai_error(document, code="request_too_large")


async def test_a_body_larger_than_the_leader_takes_is_413(gateway):
    status, document, _ = await gateway.chat(messages=[{"role": "user", "content": "x" * (5 * 2**20)}])

    assert status == 413
    assert_openai_error(document, code="request_too_large")


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/embeddings", "/v2/models", "/v1", "/api/v1/nothing"])
async def test_an_unknown_path_is_404_and_names_v1(gateway, path):
    for method in ("GET", "POST"):
        async with gateway.client.request(method, gateway.url + path) as response:
            document = await response.json()
        assert response.status == 404
        assert "/v1" in document["error"]["message"]
        assert document["error"]["code"] == "not_found"
        assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", "/v1/models", "GET"),
        ("OPTIONS", CHAT, "POST"),
        ("PUT", "/api/v1/models/a/b/load", "GET, POST"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_a_wrong_method_is_405_with_allow(gateway, method, path, allow):
    async with gateway.client.request(method, gateway.url + path) as response:
        document = await response.json()

    assert (response.status, response.headers["Allow"]) == (405, allow)
    assert document["error"]["code"] == "method_not_allowed"
    assert not [name for name in response.headers if name.lower().startswith("access-control")]


async def test_head_is_get_without_the_body(gateway):
    async with gateway.client.head(gateway.url + "/v1/models") as response:
        assert response.status == 200
        assert await response.read() == b""


async def test_head_of_a_stream_is_its_headers_alone(gateway):
    """Events after the headers of a HEAD would stand before the next reply of the connection."""
    async with gateway.client.head(gateway.url + "/api/v1/models/tiny/status/stream") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert await response.read() == b""
