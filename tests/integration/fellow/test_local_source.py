"""Slices from folders of this machine: copied when right, never trusted, whatever lies there."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from swarm_core.clock import SystemClock
from swarm_core.errors import Reason, SwarmError
from swarm_fellow.host.weights.local_source import LocalModels

from tests.integration.fellow.checkpoint import LAYERS, Checkpoint, Home, LeaderOf, safetensors_of


def home_with(tmp_path: Path, *folders: Path, has_weights: bool = False) -> Home:
    """A fellow that looks into these folders anew for every load."""
    checkpoint = Checkpoint(is_remote=False)
    near = [LocalModels(folders, SystemClock(), rescan_s=0.0)]
    return Home(tmp_path / "cache", checkpoint, near, LeaderOf(checkpoint, has_weights))


async def test_tensors_of_a_local_folder_are_not_fetched(tmp_path: Path):
    folder = Checkpoint().write_to(tmp_path / "hf")
    home = home_with(tmp_path, folder)
    fetched = await home.fetch(0, 2)

    assert fetched.fetched_bytes < 100 and home.leader.asked == []  # the config came from the leader


async def test_shards_of_a_training_and_of_a_hub_s_own_cache_are_found(tmp_path: Path):
    """Other files than the manifest names, one of them behind a link, as the hub's client lays them out."""
    checkpoint = Checkpoint()
    names = sorted(checkpoint.tensors)
    for stage, chosen in enumerate((names[:4], names[4:])):
        shard, _ = safetensors_of({name: checkpoint.tensors[name] for name in chosen})
        (tmp_path / "run" / "shards").mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / "shards" / f"stage_{stage}.safetensors").write_bytes(shard)
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(tmp_path / "run" / "shards" / "stage_0.safetensors")
    (tmp_path / "run" / "shards" / "stage_0.safetensors").rename(tmp_path / "blob")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(tmp_path / "blob")
    home = home_with(tmp_path, tmp_path / "run", tmp_path / "hub")
    await home.fetch()

    assert home.leader.asked == []


async def test_other_weights_under_the_same_names_are_tried_and_not_taken(tmp_path: Path):
    """A fine-tune of the model lies in the first folder: what is equal is taken from it, the rest from the second."""
    tuned = Checkpoint()
    changed = {"model.layers.1.mlp.weight", "model.layers.2.mlp.weight"}
    tensors = {name: raw[::-1] if name in changed else raw for name, raw in tuned.tensors.items()}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "model.safetensors").write_bytes(safetensors_of(tensors)[0])
    home = home_with(tmp_path, tmp_path / "tuned", Checkpoint().write_to(tmp_path / "right"))
    await home.fetch()

    assert home.leader.asked == [] and home.holds_nothing_wrong()


async def test_what_only_a_fine_tune_has_comes_from_the_leader(tmp_path: Path):
    tuned = Checkpoint()
    tensors = tuned.tensors | {"model.norm.weight": bytes(4096)}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "model.safetensors").write_bytes(safetensors_of(tensors)[0])
    home = home_with(tmp_path, tmp_path / "tuned", has_weights=True)
    fetched = await home.fetch()

    assert home.leader.asked == ["model.norm.weight"]
    assert 4096 <= fetched.fetched_bytes < 4096 + 100


def flip(raw: bytes) -> bytes:
    return b"".join((raw[: len(raw) // 2], bytes([raw[len(raw) // 2] ^ 1]), raw[len(raw) // 2 + 1 :]))


def lying(**entry: object) -> Callable[[bytes], bytes]:
    """Every tensor's entry of the header says this."""

    def change(raw: bytes) -> bytes:
        length = int.from_bytes(raw[:8], "little")
        header = {name: facts | entry for name, facts in json.loads(raw[8 : 8 + length]).items()}
        head = json.dumps(header).encode()
        return len(head).to_bytes(8, "little") + head + raw[8 + length :]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:4],
        lambda raw: b"",
        lambda raw: b"\xff" * 8 + raw[8:],
        lambda raw: (2**40).to_bytes(8, "little") + raw[8:],
        lambda raw: raw[:8] + b"[" * (len(raw) - 8),
        lambda raw: b"\x80\x04\x95" + raw,
        lying(data_offsets=[0, 4096]),
        lying(data_offsets=[2**62, 2**63]),
        lying(data_offsets=[-4096, 0]),
        lying(data_offsets=[4096, 0]),
        lying(data_offsets="all"),
        lying(shape=[2**62]),
        lying(shape=[1024.0]),
        lying(shape=[True, 1024]),
        lying(dtype="F32/../.."),
        lying(dtype=None),
    ],
)
async def test_a_damaged_or_lying_file_is_not_believed_and_the_load_goes_on(
    tmp_path: Path, damage: Callable[[bytes], bytes]
):
    folder = Checkpoint().write_to(tmp_path / "hf")
    for file in folder.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    home = home_with(tmp_path, folder, has_weights=True)
    await home.fetch()

    assert home.leader.asked and home.holds_nothing_wrong()


async def test_a_pipe_and_a_folder_of_a_weight_file_s_name_are_not_waited_for(tmp_path: Path):
    folder = Checkpoint().write_to(tmp_path / "hf")
    os.mkfifo(folder / "aaa.safetensors")
    (folder / "zzz.safetensors").mkdir()
    (folder / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    home = home_with(tmp_path, tmp_path / "not there", folder)
    await home.fetch()

    assert home.leader.asked == []


async def test_a_file_that_was_repaired_is_looked_at_again(tmp_path: Path):
    folder = Checkpoint().write_to(tmp_path / "hf")
    right = {file: file.read_bytes() for file in folder.iterdir()}
    for file, raw in right.items():
        file.write_bytes(flip(raw))
    home = home_with(tmp_path, folder)
    with pytest.raises(SwarmError) as first:
        await home.fetch()
    for file, raw in right.items():
        file.write_bytes(raw)
        os.utime(file, ns=(1, 1))
    await home.fetch()

    assert first.value.why is Reason.SERVABLE_CORRUPT and "with wrong bytes from local folders" in first.value.message


async def test_a_beginning_from_elsewhere_does_not_speak_against_a_local_file(tmp_path: Path):
    """A part that broke off is continued; when its beginning was wrong, the local file is read from its start."""
    home = home_with(tmp_path, Checkpoint().write_to(tmp_path / "hf"))
    await home.fetch(0, 1)
    (path,) = [
        path
        for path in (tmp_path / "cache" / "tensors").iterdir()
        if home.checkpoint.manifest.tensors["model.layers.0.mlp.weight"].sha256 in path.name
    ]
    raw = path.read_bytes()
    path.with_name(path.name + ".part").write_bytes(raw[:200] + b"?" * 1000)
    path.unlink()
    await home.fetch(0, LAYERS)

    assert home.leader.asked == []
