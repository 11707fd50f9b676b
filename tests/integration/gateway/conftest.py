"""A real gateway before a scripted leader, both on free ports of this machine."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from swarm_core.clock import SystemClock
from swarm_gateway.__main__ import listen, make_runner
from swarm_gateway.app import make_app
from swarm_gateway.config import GatewayConfig
from swarm_gateway.leader import Leader
from swarm_rpc.channel import dial

from tests.integration.gateway.scripted_leader import ScriptedLeader, done, start_leader, started, tokens

CONFIG = GatewayConfig(port=0, keep_alive_s=5, request_timeout_s=20, api_timeout_s=10)


@dataclass
class Running:
    """A gateway, what stands behind it, and a client for it."""

    url: str
    leader: ScriptedLeader
    client: aiohttp.ClientSession
    runner: Any
    leader_server: Any

    async def chat(self, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Ask for a chat; status, JSON (or text of a stream), headers."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}
        async with self.client.post(self.url + path, json=body) as response:
            text = await response.text()
            plain = response.content_type != "application/json"
            return response.status, text if plain else json.loads(text), response.headers

    async def get(self, path: str) -> tuple[int, Any]:
        """GET some JSON."""
        async with self.client.get(self.url + path) as response:
            return response.status, await response.json()


async def hello(request: Any) -> AsyncIterator[Any]:
    """A reply with an empty piece in it and characters of every width."""
    for event in (started(), tokens("Hé"), tokens(""), tokens("llo 🙂"), done()):
        yield event


@pytest.fixture
async def start_gateway():
    """Start gateways with settings of the test's own; all end with it."""
    async with AsyncExitStack() as stack:

        async def start(
            leader_address: str = "",
            tokens: Mapping[str, tuple[str, ...]] | None = None,
            knows_tokens: bool = True,
            **settings: Any,
        ) -> Running:
            leader = ScriptedLeader()
            leader.scripts["tiny"] = hello
            leader.tokens, leader.knows_tokens = dict(tokens or {}), knows_tokens
            server = None
            if not leader_address:
                server, port = await start_leader(leader)
                stack.push_async_callback(server.stop, 0)
                leader_address = f"127.0.0.1:{port}"
            config = replace(CONFIG, leader=leader_address, **settings)
            # Loopback only, so a plain channel.
            link = Leader(dial(config.leader, config.body_bytes_max + 2**20), config.leader)
            runner = make_runner(make_app(config, link, SystemClock(), "0.0.0"), config)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            port = await listen(runner, config)
            client = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)))
            return Running(f"http://127.0.0.1:{port}", leader, client, runner, server)

        yield start


@pytest.fixture
async def gateway(start_gateway) -> Running:
    """One gateway with the usual settings."""
    return await start_gateway()
