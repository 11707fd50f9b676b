"""HTTP that no good client sends: every answer is JSON in OpenAI's shape, and the next client notices nothing."""

import asyncio
import gzip
import zlib

import psutil
import pytest

from tests.integration.gateway.raw_http import connect, read_reply, send_raw
from tests.integration.gateway.test_failures import assert_openai_error

CHAT = "/v1/chat/completions"
HOST = b"Host: localhost\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS to a plain port
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n", 400),
        (b"GE\x00T /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET  HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nX: a\x00b\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n X: folded\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 403),
        (b"GET /v1/models/\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v1/models?x=\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n" + HOST + b"\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1e3\r\n" + HOST + b"\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n" + HOST + b"\r\n", 400),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
            + HOST
            + b"\r\n0\r\n\r\n",
            400,
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"\r\nzz\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nExpect: wonders\r\n" + HOST + b"\r\n", 417),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"TRACE /v1/models HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"FOO /v1/models HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"PROPFIND /v1/models HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (b"GET /v1/models/a%0d%0aX:1 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /v1/models/%00 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /v1/models/%ff HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /v1/models/%zz HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /%0a HTTP/1.1\r\n" + HOST + b"\r\n", 404),
        (b"GET /v1/models/%ed%a0%80 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ],
    ids=range(32),
)
async def test_what_is_hardly_http_is_refused_as_json(gateway, request_bytes, status):
    reply = await send_raw(gateway, request_bytes)

    assert reply.status == status
    assert_openai_error(reply.document)
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "aiohttp" not in str(reply.headers)
    assert reply.headers["x-request-id"]
    assert (await gateway.get("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri_too_long"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n" + HOST + b"\r\n", 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 10_000 + HOST + b"\r\n", 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: " + b"a" * 16_000_000, 431, "headers_too_large"),
    ],
    ids=["line", "header", "headers", "endless"],
)
async def test_a_head_beyond_the_limits_is_refused_and_names_which(gateway, request_bytes, status, code):
    """F3: no token is needed to be safe from it."""
    reply = await send_raw(gateway, request_bytes)

    assert reply.status == status
    assert_openai_error(reply.document, code=code)
    assert reply.is_closed


async def test_a_broken_head_request_has_no_body_in_its_answer(gateway):
    """Its bytes would stand before the next reply."""
    reply = await send_raw(gateway, b"HEAD /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", has_body=False)

    assert (reply.status, reply.is_closed) == (414, True)


async def test_heads_that_never_end_leave_memory_flat(start_gateway):
    gateway = await start_gateway()
    before = psutil.Process().memory_info().rss

    async def flood() -> int:
        reader, writer = await connect(gateway)
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\n")
            for number in range(100):
                writer.write(f"X-{number}: ".encode() + b"a" * 8_000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            return (await read_reply(reader)).status
        except ConnectionError:
            return 0
        finally:
            writer.close()

    statuses = await asyncio.gather(*(flood() for _ in range(50)))

    assert set(statuses) <= {431, 0} and 431 in statuses
    assert psutil.Process().memory_info().rss - before < 64 * 2**20
    assert (await gateway.get("/healthz"))[0] == 200


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(("beyond", "status"), [(0, 400), (1, 413)])
async def test_the_largest_body_is_read_and_one_byte_more_is_413(start_gateway, is_chunked, beyond, status):
    gateway = await start_gateway(max_body_mb=1)
    size = 2**20 + beyond

    async def pieces():
        for at in range(0, size, 65_536):
            yield b" " * min(65_536, size - at)

    body = pieces() if is_chunked else b" " * size
    async with gateway.client.post(gateway.url + CHAT, data=body) as response:
        document = await response.json()

    assert response.status == status  # 400: spaces are not JSON
    assert_openai_error(document, code="request_too_large" if beyond else "invalid_json")


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


def raw_deflated(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", deflated), ("deflate", raw_deflated)])
@pytest.mark.parametrize("path", [CHAT, "/api/v1/models/tiny/load"])
async def test_a_packed_body_is_measured_unpacked(start_gateway, name, pack, path):
    """F41: 64 MiB of nothing in 64 KiB."""
    gateway = await start_gateway(max_body_mb=1)
    headers = {"Content-Encoding": name, "Content-Type": "application/json"}
    async with gateway.client.post(gateway.url + path, data=pack(b" " * (64 * 2**20)), headers=headers) as response:
        document = await response.json()
    async with gateway.client.post(gateway.url + path, data=pack(b"[]"), headers=headers) as response:
        small = await response.json()

    assert document["error"]["code"] == "request_too_large"
    assert "object" in small["error"]["message"]  # it was unpacked and read


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "gzip, gzip", "x-wonder"])
async def test_an_encoding_that_is_not_read_is_415_and_names_those_that_are(gateway, name):
    headers = f"Content-Encoding: {name}\r\nContent-Length: 4\r\n".encode()
    reply = await send_raw(gateway, b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + HOST + headers + b"\r\nabcd")

    assert reply.status == 415
    assert reply.headers["accept-encoding"] == "gzip, deflate"
    assert_openai_error(reply.document, code="unsupported_encoding")


async def test_a_broken_packed_body_is_400_and_says_why(gateway):
    headers = b"Content-Encoding: gzip\r\nContent-Length: 8\r\n"
    reply = await send_raw(gateway, b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + HOST + headers + b"\r\nnot gzip")

    assert reply.status == 400
    assert_openai_error(reply.document)
    assert "transfer is broken: Can not decode content-encoding: gzip" in reply.document["error"]["message"]


async def test_a_client_that_asks_first_is_invited_only_when_it_may_come_in(start_gateway):
    body = b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'
    head = b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n"
    head += b"Content-Length: %d\r\n" % len(body)
    gateway = await start_gateway()
    reader, writer = await connect(gateway)
    writer.write(head + b"\r\n")
    invited = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.write(body)
    reply = await read_reply(reader)
    writer.close()
    closed = await start_gateway(tokens={"sk-swarm-a": ("read",)})
    refused = await send_raw(closed, head + b"\r\n")
    large = head.replace(b"Content-Length: %d" % len(body), b"Content-Length: 99999999999")

    assert invited == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert reply.status == 200
    assert refused.status == 401
    assert (await send_raw(gateway, large + b"\r\n")).status == 413


async def test_requests_sent_ahead_are_answered_in_order(gateway):
    reader, writer = await connect(gateway)
    one = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    other = b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n"
    head = b"HEAD /v1/models HTTP/1.1\r\n" + HOST + b"\r\n"
    writer.write((one + other + head) * 40)
    statuses = []
    for at in range(120):
        statuses.append((await read_reply(reader, has_body=at % 3 != 2)).status)
    writer.close()

    assert statuses == [200, 404, 200] * 40


async def test_http_1_0_and_absolute_targets_are_served(gateway):
    old = await send_raw(gateway, b"GET /healthz HTTP/1.0\r\n\r\n")
    host = gateway.url.removeprefix("http://").encode()
    absolute = await send_raw(gateway, b"GET http://" + host + b"/healthz HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")

    assert (old.status, old.is_closed) == (200, True)
    assert absolute.status == 200


async def test_an_upgrade_is_not_taken(gateway):
    request = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    reply = await send_raw(gateway, request)

    assert reply.status == 200


async def test_what_was_sent_is_neither_told_nor_logged(gateway, capfd):
    secret = b"Bearer very-secret-word-0123456789"
    for request in (
        b"GET /healthz HTTP/1.1\r\nAuthorization : " + secret + b"\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nAuthorization: " + secret + b"\x00\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nAuthorization: " + secret + b"a" * 20_000 + b"\r\n" + HOST + b"\r\n",
        secret + b"\r\n\r\n",
    ):
        reply = await send_raw(gateway, request)
        assert 400 <= reply.status < 500
        assert b"very-secret" not in reply.body
    told = capfd.readouterr()

    assert "very-secret" not in told.out + told.err
