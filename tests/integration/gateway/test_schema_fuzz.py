"""Requests made from the gateway's own OpenAPI document, right and wrong: a reply or a 4xx in JSON."""

import asyncio
import contextlib
import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from yarl import URL

from tests.integration.gateway.test_failures import assert_openai_error

EXAMPLES = 12  # of each kind for each operation
# The scripted leader ends these streams at once; what it lacks answers as a leader that is too old would.
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def assert_answered(status: int, content_type: str, body: bytes, asked: str) -> None:
    """A reply, or a refusal that is the client's own fault and says so."""
    assert status < 500 and status != 422, f"{asked}: {status} {body[:300]!r}"
    if status >= 400 and body:
        assert content_type.startswith("application/json"), asked
        document = json.loads(body)
        document["error"].pop("metadata", None)
        assert_openai_error(document)


def try_operations(url: str, document: dict[str, Any], mode: GenerationMode) -> int:
    """Every operation with requests of one kind. Returns how many were sent."""
    schema = schemathesis.openapi.from_dict(document)
    session = requests.Session()
    sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @SETTINGS
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            nonlocal sent
            response = case.call(base_url=url, session=session, timeout=20)
            sent += 1
            asked = case.as_curl_command()
            assert_answered(
                response.status_code, response.headers.get("content-type", [""])[0], response.content, asked
            )

        with contextlib.suppress(Unsatisfiable):  # nothing about it can be wrong
            send()
    return sent


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
async def test_every_operation_takes_what_it_describes_and_refuses_the_rest(gateway, mode):
    _, document = await gateway.get("/api/v1/openapi.json")

    assert await asyncio.to_thread(try_operations, gateway.url, document, mode) >= EXAMPLES
    assert (await gateway.get("/healthz"))[0] == 200


ODD = ["%00", "%ff", "..", "a/b", "a%2fb", "%ed%a0%80", "\u2028", "a" * 4000, "{x}", "*"]
TEXTS = st.text(max_size=20) | st.sampled_from(ODD)
PATHS = st.lists(TEXTS | st.sampled_from(["v1", "api", "models", "chat", "completions", "load", "static"]), max_size=6)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    parts=PATHS,
    query=st.dictionaries(TEXTS, TEXTS, max_size=3),
    body=st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b'{"a": "\\ud800"}', b'{"num_stages": 1e400}']),
)
async def test_no_path_query_or_body_makes_the_gateway_fail(gateway, method, parts, query, body):
    path = "/" + "/".join(quote(part, safe="%", errors="surrogatepass") for part in parts)
    text = urlencode(query, errors="surrogatepass")
    url = URL(f"{gateway.url}{path}?{text}", encoded=True)
    async with gateway.client.request(method, url, data=body) as response:
        assert_answered(response.status, response.headers.get("Content-Type", ""), await response.read(), str(url))
