"""Published clients run against a swarm as they are: the same text whole and streamed, tools, JSON, errors."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MODEL, QUICK, ROOT
from tests.e2e.swarm import Swarm, swarm_up

HERE = Path(__file__).parent / "clients"
INSTALLED = ROOT / ".venv" / "clients"  # scripts/install_clients fills it
PROMPT = "What is the capital of France?"
REPLY = "The capital of France is Paris."
CLIENT_S = 120.0


@pytest.fixture(scope="module")
def swarm(models_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Two stages, and a token is asked for: the clients present theirs as they would anywhere."""
    options = ("--fellows", 2, "--stages", 2, "--model", MODEL, "--model-dir", models_root)
    env = {**QUICK, "SWARM_REQUIRE_API_TOKEN": "1"}
    with swarm_up(tmp_path_factory.mktemp("clients"), *options, env=env) as swarm:
        yield swarm


@pytest.fixture(scope="module")
def api_key(swarm: Swarm) -> str:
    """What an operator hands a user: a token that may chat and look, no more."""
    made = swarm.cli("tokens", "create", "--scope", "operate", "a user", "--json")
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)["secret"]


def run_client(swarm: Swarm, api_key: str, *command: str, libraries: Path | None = None) -> dict:
    """What a client prints. libraries: where its packages are; None is this environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SWARM_", "OPENAI_"))}
    env |= {"OPENAI_BASE_URL": f"{swarm.http}/v1", "OPENAI_API_KEY": api_key, "MODEL": MODEL, "PROMPT": PROMPT}
    if libraries is not None:
        if not libraries.is_dir():
            reason = f"{libraries} is not installed; scripts/install_clients does it"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        env["PYTHONPATH"] = str(libraries)
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S, env=env, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def run_python(swarm: Swarm, api_key: str, script: str, libraries: Path | None) -> dict:
    return run_client(swarm, api_key, sys.executable, str(HERE / script), libraries=libraries)


def run_node(swarm: Swarm, api_key: str, script: str) -> dict:
    """Node finds packages beside the script, so it runs where they are."""
    node = shutil.which("node")
    if node is None or not (INSTALLED / "node").is_dir():
        pytest.skip("node and the packages of scripts/install_clients are not installed")
    placed = shutil.copy(HERE / script, INSTALLED / "node" / script)
    return run_client(swarm, api_key, node, str(placed))


def check_tool(call: dict, name: str = "get_weather") -> None:
    assert call["name"] == name
    assert isinstance(call["arguments"]["city"], str)


@pytest.mark.parametrize("libraries", [None, INSTALLED / "openai-previous"], ids=["current", "previous"])
def test_the_openai_package_of_python(swarm: Swarm, api_key: str, libraries: Path | None):
    seen = run_python(swarm, api_key, "openai_python.py", libraries)

    assert seen["models"] == [MODEL]
    assert [seen["whole"], seen["streamed"]] == [REPLY, REPLY]
    assert seen["finish"] == ["stop", "stop"]
    assert seen["usage"][0] == seen["usage"][1] > 0
    check_tool(seen["tool"])
    assert seen["streamed_tool"] == seen["tool"]
    assert seen["tool_finish"] == "tool_calls"
    assert isinstance(seen["json"]["capital"], str)
    assert REPLY.startswith("".join(seen["logprobs"]))
    assert [seen["response"], seen["response_streamed"], seen["response_final"]] == [REPLY] * 3
    assert seen["response_ends"] == "response.completed"
    assert seen["completion"] == seen["completion_streamed"] != ""
    assert seen["errors"] == {
        "model": "NotFoundError",
        "messages": "BadRequestError",
        "key": "AuthenticationError",
    }


def test_the_openai_package_of_npm(swarm: Swarm, api_key: str):
    seen = run_node(swarm, api_key, "openai_node.mjs")

    assert seen["models"] == [MODEL]
    assert [seen["whole"], seen["streamed"], seen["response"], seen["response_streamed"]] == [REPLY] * 4
    check_tool(seen["tool"])
    assert seen["errors"] == {"model": "NotFoundError"}


def test_the_ai_sdk_of_vercel(swarm: Swarm, api_key: str):
    seen = run_node(swarm, api_key, "ai_sdk.mjs")

    assert [seen["whole"], seen["streamed"]] == [REPLY, REPLY]
    assert seen["usage"][0] == seen["usage"][1] > 0
    check_tool(seen["tool"])


def test_langchain(swarm: Swarm, api_key: str):
    seen = run_python(swarm, api_key, "langchain_client.py", INSTALLED / "langchain")

    assert [seen["whole"], seen["streamed"]] == [REPLY, REPLY]
    check_tool(seen["tool"], "GetWeather")
    assert isinstance(seen["json"]["capital"], str)


def test_litellm(swarm: Swarm, api_key: str):
    seen = run_python(swarm, api_key, "litellm_client.py", INSTALLED / "litellm")

    assert [seen["whole"], seen["streamed"]] == [REPLY, REPLY]
    check_tool(seen["tool"])


def test_llama_index(swarm: Swarm, api_key: str):
    seen = run_python(swarm, api_key, "llama_index_client.py", INSTALLED / "llama-index")

    assert [seen["whole"], seen["streamed"]] == [REPLY, REPLY]


def test_the_curl_command_of_the_readme(swarm: Swarm, api_key: str):
    """The reader's command, at this swarm's port and with a token."""
    text = (ROOT / "README.md").read_text()
    command = re.search(r"^curl .*?(?=\n```)", text, re.DOTALL | re.MULTILINE)
    assert command is not None
    words = shlex.split(command[0].replace("\\\n", " "))
    words = [word.replace("http://127.0.0.1:8080", swarm.http) for word in words]

    words += ["-sS", "-H", f"Authorization: Bearer {api_key}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)

    events = [line.removeprefix("data: ") for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])
