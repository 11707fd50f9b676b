"""Hub ids: the hub's own client against a stub that speaks its protocol."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from swarm_core.errors import BadRequest, Unavailable
from swarm_leader.catalog.importer import HUB_COMMAND, Hub, Importer

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint
from tests.integration.catalog.hub_stub import COMMIT, HubStub, serve_hub


def importer_of(hub: HubStub, root: Path, token: str | None = None) -> Importer:
    """An importer that asks this stub."""
    return Importer(root, hub=Hub(endpoint=hub.endpoint, token=token))


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_hub_id_is_fetched_without_what_is_not_needed(root: Path, tmp_path: Path, shards: int):
    repository = write_checkpoint(tmp_path / "repository", shards=shards)
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md", "modeling_evil.py"):
        (repository / name).write_bytes(b"x" * 1000)
    steps: list[str] = []
    async with serve_hub(repository) as hub:
        manifest = await importer_of(hub, root).import_source(
            "org/tiny", "", "", lambda step, done, total: steps.append(step)
        )

    assert manifest.model_id == manifest.source == "org/tiny"
    assert set(manifest.tensors) == set(llama_tensors())
    assert manifest.extra["commit"] == COMMIT
    assert not {"pytorch_model.bin", "consolidated.safetensors", "README.md", "modeling_evil.py"} & set(hub.fetched)
    assert steps[0] == "download" and steps[-1] == "hash"
    assert names_in(root) == ["org---tiny"]


async def test_the_same_commit_again_fetches_nothing_and_a_new_one_replaces(root: Path, tmp_path: Path):
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        importer = importer_of(hub, root)
        first = await importer.import_source("org/tiny", "", "", nobody_listens)
        hub.fetched.clear()
        again = await importer.import_source("org/tiny", "", "v1", nobody_listens)
        assert (again, hub.fetched) == (first, [])

        write_checkpoint(tmp_path / "repository", tensors=llama_tensors(seed=5))
        hub.commit = COMMIT[::-1]
        second = await importer.import_source("org/tiny", "", "", nobody_listens)
    assert second.tensors != first.tensors


async def test_a_model_that_is_not_served_is_refused_before_its_weights_are_fetched(root: Path, tmp_path: Path):
    async with serve_hub(write_checkpoint(tmp_path / "repository", config={"model_type": "mamba"})) as hub:
        with pytest.raises(BadRequest, match="'mamba' is not served"):
            await importer_of(hub, root).import_source("org/tiny", "", "", nobody_listens)

    assert "model.safetensors" not in hub.fetched
    assert names_in(root) == []


async def test_a_private_model_is_fetched_with_the_token(root: Path, tmp_path: Path):
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        hub.token = "hf_test"
        manifest = await importer_of(hub, root, token="hf_test").import_source("org/tiny", "", "", nobody_listens)
        with pytest.raises(BadRequest, match="set HF_TOKEN"):
            await importer_of(hub, root, token="hf_wrong").import_source("org/tiny", "other", "", nobody_listens)

    assert manifest.model_id == "org/tiny"


@pytest.mark.parametrize(
    ("source", "revision", "gated", "words"),
    [
        ("org/missing", "", False, "no model org/missing, or it is private"),
        ("org/tiny", "v9", False, "org/tiny has no revision v9"),
        ("org/tiny", "", True, "org/tiny is gated: accept its terms"),
    ],
)
async def test_what_the_hub_refuses_is_told_with_the_way_out(
    root: Path, tmp_path: Path, source: str, revision: str, gated: bool, words: str
):
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        hub.gated = gated
        with pytest.raises(BadRequest, match=words):
            await importer_of(hub, root).import_source(source, "m", revision, nobody_listens)


@pytest.mark.parametrize(
    ("endpoint", "host", "why"),
    [
        ("http://127.0.0.1:9", "127.0.0.1:9", "Connection refused"),
        ("https://hub.invalid", "hub.invalid", "[A-Z][a-z ]+"),
    ],
)
async def test_a_hub_that_cannot_be_reached_is_told_with_what_works_without_it(root: Path, endpoint, host, why):
    words = rf"the hub at {host} cannot be reached from the leader's machine \({why}\); a folder or a .gguf file works"
    with pytest.raises(Unavailable, match=words):
        await Importer(root, hub=Hub(endpoint=endpoint)).import_source("org/tiny", "", "", nobody_listens)
    assert names_in(root) == []


async def test_the_usual_variables_of_the_hub_client_are_honoured(tmp_path: Path):
    """HF_ENDPOINT and HF_TOKEN reach the child process as the leader's environment."""
    (tmp_path / "target").mkdir()
    request = {"repo": "org/tiny", "revision": "", "target": str(tmp_path / "target"), "known_commit": None}
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        hub.token = "hf_test"
        environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_test", "PATH": os.defpath, "HOME": str(tmp_path)}
        child = await asyncio.create_subprocess_exec(
            *HUB_COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
        )
        line = json.dumps({**request, "endpoint": None, "token": None}).encode()
        output, _ = await asyncio.wait_for(child.communicate(line), 60)

    assert child.returncode == 0
    assert json.loads(output.splitlines()[0]) == {"commit": COMMIT, "endpoint": hub.endpoint}
    assert (tmp_path / "target/model.safetensors").is_file()
