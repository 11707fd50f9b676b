"""swarm-gateway as a process: how it starts, what it refuses, how it stops."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time

import aiohttp
import pytest
from swarm_core.config import variables
from swarm_gateway.config import GatewayConfig

from tests.integration.gateway.scripted_leader import WAIT_S, ScriptedLeader, start_leader, started, tokens


async def start_process(*arguments: str, **environ: str) -> asyncio.subprocess.Process:
    """The gateway with nothing of ours in its environment but what is given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWARM_")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "swarm_gateway",
        *arguments,
        env={**clean, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def url_of(process: asyncio.subprocess.Process) -> str:
    """The address it says it listens on."""
    async with asyncio.timeout(20):
        while line := await process.stderr.readline():
            if b'"listening"' in line:
                return json.loads(line)["url"]
    raise AssertionError(f"the gateway ended with {process.returncode}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_ends_within_five_seconds_and_tells_running_streams(number):
    leader = ScriptedLeader()

    async def script(request):
        yield started()
        yield tokens("half")
        await asyncio.sleep(WAIT_S)

    leader.scripts["tiny"] = script
    server, port = await start_leader(leader)
    process = await start_process("--port", "0", SWARM_LEADER=f"127.0.0.1:{port}", SWARM_LOG_JSON="1")
    try:
        url = await url_of(process)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with aiohttp.ClientSession() as client, client.post(f"{url}/chat/completions", json=body) as response:
            text = b""
            async with asyncio.timeout(10):
                while b"half" not in text:
                    text += await response.content.readany()
                stopped_s = time.monotonic()
                process.send_signal(number)
                text += await response.content.read()
                await process.communicate()
        took_s = time.monotonic() - stopped_s
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await server.stop(0)

    assert process.returncode == 0
    assert took_s < 5
    assert b"the gateway is stopping" in text and b"[DONE]" not in text


async def test_a_taken_port_is_a_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start_process(SWARM_HTTP_PORT=str(taken.getsockname()[1]))
        _, stderr = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 2
    assert re.search(r"cannot listen on 127.0.0.1:\d+: .*in use.*SWARM_HTTP_PORT", stderr.decode())
    assert "Traceback" not in stderr.decode()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SWARM_GATEWAY_HOST": "0.0.0.0"}, "SWARM_ALLOW_INSECURE=1"),
        ({"SWARM_HTTP_PORT": "http"}, "SWARM_HTTP_PORT='http' is not a number"),
        ({"SWARM_LEADER": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"SWARM_KEEP_ALIVE_S": "0"}, "SWARM_KEEP_ALIVE_S=0 must be at least 0.01"),
        ({"SWARM_WRITE_TIMEOUT_S": "nan"}, "SWARM_WRITE_TIMEOUT_S=nan must be at least 0.01"),
        ({"SWARM_GATEWAY_REQUESTS_MAX": "0"}, "SWARM_GATEWAY_REQUESTS_MAX=0 must be at least 1"),
    ],
)
async def test_what_it_cannot_run_with_is_a_sentence(environ, words):
    process = await start_process(**environ)
    _, stderr = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 2
    assert words in stderr.decode()
    assert "Traceback" not in stderr.decode()


async def test_help_lists_every_variable_with_its_default():
    process = await start_process("--help")
    stdout, _ = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 0
    assert all(variable in stdout.decode() for variable in variables(GatewayConfig))
    assert "the leader's gRPC address, HOST:PORT [127.0.0.1:50551]" in stdout.decode()
    assert "a larger one gets 413 [16]" in stdout.decode()
    assert "without tokens [0]" in stdout.decode()
