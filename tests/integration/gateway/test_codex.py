"""A coding agent as it is published runs a tool turn against /v1/responses: asks, runs a command, tells what came."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from silentswarm.core.v1 import generation_pb2

from tests.architecture.code_tree import ROOT
from tests.integration.gateway.scripted_leader import done, started, tokens
from tests.integration.gateway.test_chat_shapes import call

CODEX = ROOT / ".venv" / "clients" / "codex" / "node_modules" / ".bin" / "codex"
CODEX_S = 60.0
SAID = "swarm-was-here"


async def one_command_then_words(request: Any) -> AsyncIterator[Any]:
    """Wants a command run, and is content with what it printed."""
    yield started()
    if any(message.role == "tool" for message in request.generation.chat.messages):
        yield tokens("It printed what it should.")
        yield done()
        return
    yield call(0, "exec_command", '{"cmd": "echo swarm-was-')
    yield call(0, arguments='here"}')
    yield done(generation_pb2.FINISH_REASON_TOOL_CALLS)


async def run_codex(folder: Path, url: str) -> str:
    """What it says on its two outputs."""
    provider = f'{{name="swarm", base_url="{url}/v1", env_key="SWARM_API_KEY", wire_api="responses"}}'
    options = ("-c", "model_provider=swarm", "-c", f"model_providers.swarm={provider}", "-m", "tiny")
    sandbox = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")  # the command is our own echo
    home = folder / "home"
    home.mkdir()
    env = {**os.environ, "CODEX_HOME": str(home), "SWARM_API_KEY": "sk-none"}
    process = await asyncio.create_subprocess_exec(
        *(CODEX, "exec", *sandbox, *options, f"Run echo {SAID}"),
        cwd=folder,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(CODEX_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.skipif(not CODEX.exists() or shutil.which("node") is None, reason="scripts/install_clients installs codex")
async def test_codex_finishes_a_tool_turn(gateway, tmp_path):
    gateway.leader.scripts["tiny"] = one_command_then_words

    output = await run_codex(tmp_path, gateway.url)

    assert "It printed what it should." in output
    first, *_, last = [request.generation.chat for request in gateway.leader.asked]
    assert "exec_command" in [tool.name for tool in first.tools]
    assert [SAID in message.content for message in last.messages if message.role == "tool"] == [True]
