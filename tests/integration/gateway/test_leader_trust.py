"""How the gateway knows its leader: by roots in a file, by a pin, or not at all."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from swarm_rpc.tls import LEADER_NAME, server_credentials

from tests.integration.gateway.scripted_leader import ScriptedLeader, start_leader
from tests.integration.gateway.test_gateway_process import start_process, url_of
from tests.integration.rpc.tls_peers import RootsServicer, make_authority


@asynccontextmanager
async def a_leader_with_tls(folder):
    """Its address and its authority."""
    authority = make_authority(folder)
    identity = authority.issue_identity((LEADER_NAME,))
    leader = ScriptedLeader()
    leader.tokens = {"sk-swarm-a": ("read",)}
    credentials = server_credentials(lambda: identity)
    server, port = await start_leader(leader, credentials=credentials, roots=RootsServicer(authority.roots))
    try:
        yield f"127.0.0.1:{port}", authority
    finally:
        await server.stop(0)


async def ask(process, token: str = "sk-swarm-a") -> tuple[int, dict]:
    """The list of models, asked until the gateway has an opinion on its leader."""
    url = await url_of(process)
    async with asyncio.timeout(20), aiohttp.ClientSession() as client:
        while True:
            async with client.get(f"{url}/models", headers={"Authorization": f"Bearer {token}"}) as response:
                document = await response.json()
            if "does not answer" not in str(document):
                return response.status, document
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("by", ["file", "pin"])
async def test_a_leader_that_proves_itself_is_used(tmp_path, by):
    async with a_leader_with_tls(tmp_path / "leader") as (address, authority):
        roots = tmp_path / "roots.pem"
        roots.write_bytes(authority.roots)
        known_by = str(roots) if by == "file" else f"sha256:{authority.pin}"
        process = await start_process("--port", "0", SWARM_LEADER=address, SWARM_LEADER_CA=known_by, SWARM_LOG_JSON="1")
        try:
            status, document = await ask(process)
        finally:
            process.terminate()
            await process.communicate()

    assert status == 200 and document["object"] == "list"


async def test_another_leader_gets_no_token_and_the_words_say_why(tmp_path):
    async with a_leader_with_tls(tmp_path / "leader") as (address, _):
        roots = tmp_path / "roots.pem"
        roots.write_bytes(make_authority(tmp_path / "other").roots)
        process = await start_process(
            "--port", "0", SWARM_LEADER=address, SWARM_LEADER_CA=str(roots), SWARM_LOG_JSON="1"
        )
        try:
            status, document = await ask(process)
        finally:
            process.terminate()
            await process.communicate()

    assert status == 503
    assert "does not lead to a root that SWARM_LEADER_CA trusts" in document["error"]["message"]


async def test_a_wrong_pin_ends_the_start(tmp_path):
    async with a_leader_with_tls(tmp_path / "leader") as (address, _):
        process = await start_process("--port", "0", SWARM_LEADER=address, SWARM_LEADER_CA="sha256:" + "ab" * 32)
        _, stderr = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 2
    assert "is not the leader that is expected" in stderr.decode() and "Traceback" not in stderr.decode()


async def test_plaintext_to_a_leader_with_tls_says_what_to_set(tmp_path):
    async with a_leader_with_tls(tmp_path / "leader") as (address, _):
        process = await start_process("--port", "0", SWARM_LEADER=address, SWARM_LOG_JSON="1")
        try:
            status, document = await ask(process)
        finally:
            process.terminate()
            await process.communicate()

    assert status == 503
    assert "speaks TLS" in document["error"]["message"] and "SWARM_LEADER_CA" in document["error"]["message"]
