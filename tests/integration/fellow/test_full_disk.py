"""A disk that fills up while a slice comes: said clearly, nothing half is loaded, and it goes on once there is room."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from swarm_core.clock import SystemClock
from swarm_core.errors import DiskFull
from swarm_fellow.host.weights.hub_door import HubAccess
from swarm_fellow.host.weights.hub_source import HubSource
from swarm_fellow.host.weights.local_source import LocalModels
from swarm_fellow.host.weights.sources import NearSource

from tests.integration.fellow.checkpoint import Checkpoint, Home, LeaderOf
from tests.integration.fellow.scripted_hub import ScriptedHub, serving

DISK_BYTES = 2**20
TENSOR_BYTES = 40_960  # eleven of them fit on the disk, but not beside the filler


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems can be mounted by root alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["leader", "hub", "local"])
async def near(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[NearSource]]:
    """Where the bytes come from."""
    checkpoint = Checkpoint(size_bytes=TENSOR_BYTES)
    async with serving(ScriptedHub(checkpoint.files)) as hub:
        source = HubSource(HubAccess(hub.endpoint))
        folder = checkpoint.write_to(tmp_path / "hf")
        yield {"leader": [], "hub": [source], "local": [LocalModels([folder], SystemClock())]}[request.param]
        await source.close()


async def test_a_full_disk_is_said_and_the_load_works_once_it_was_freed(disk: Path, near: list[NearSource]):
    checkpoint = Checkpoint(size_bytes=TENSOR_BYTES)
    home = Home(disk / "cache", checkpoint, near, LeaderOf(checkpoint, has_weights=not near))
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - 6 * TENSOR_BYTES))
    with pytest.raises(DiskFull) as refusal:
        await home.fetch()
    named = list((disk / "cache" / "tensors").glob("*.safetensors"))
    assert home.holds_nothing_wrong() and 0 < len(named) < 11
    filler.unlink()
    fetched = await home.fetch()

    assert "No space left on device" in refusal.value.message and "make room" in refusal.value.message
    assert fetched.fetched_bytes < checkpoint.slice_bytes(0, 4) - len(named) * TENSOR_BYTES + 100
