"""A leader that lies about a model: nothing of it is loaded, nothing leaves the cache, and the disk stays bounded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import fellow_link_pb2_grpc, inference_link_pb2_grpc, transfer_pb2_grpc
from swarm_rpc.server import listen, make_server

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel

Change = Callable[[dict[str, Any]], None]


class LyingModel(TinyModel):
    """A model whose manifest was changed by hand; its hash is honest, as the leader itself names it."""

    change: Change | None = None
    raw: bytes | None = None

    @property
    def manifest_json(self) -> bytes:
        """What it serves as servable.json."""
        if self.raw is not None:
            return self.raw
        document = json.loads(super().manifest_json)
        if self.change is not None:
            self.change(document)
        return json.dumps(document).encode()


class LyingLeader(ScriptedLeader):
    """Sends messages as large as a real leader may."""

    async def start(self) -> None:
        """Listen once."""
        self._server = make_server(64 * 2**20)
        fellow_link_pb2_grpc.add_FellowLinkServicer_to_server(self, self._server)
        inference_link_pb2_grpc.add_InferenceLinkServicer_to_server(self, self._server)
        transfer_pb2_grpc.add_TransferServicer_to_server(self, self._server)
        self.port = listen(self._server, "127.0.0.1:0")
        await self._server.start()
        self.running.append(self)


async def load(leader: ScriptedLeader, folder: Path, **changes: Any) -> link_pb2.SignalResult:
    """Load once into a new fellow's cache below `folder`."""
    await leader.start()
    async with running_fellow(leader.address, folder):
        fellow = await leader.connection()
        model = next(iter(leader.models.values()))
        return await fellow.ask(60, load=link_pb2.LoadSignal(spec=model.spec("p1", **changes)))


def files_below(folder: Path) -> set[str]:
    """Every file, from `folder` on, that is not the fellow's own state."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and "state" not in path.parts}


def rename_file(name: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["files"][name] = document["files"].pop("config.json")

    return change


def set_field(name: str, value: Any) -> Change:
    return lambda document: document.update({name: value})


def set_tensor(**facts: Any) -> Change:
    return lambda document: document["tensors"]["model.layers.1.mlp.weight"].update(facts)


@pytest.mark.parametrize(
    "change",
    [
        rename_file("../../escaped.json"),
        rename_file("/tmp/escaped.json"),
        rename_file("..\\escaped.json"),
        rename_file("a\0.json"),
        rename_file("servable.json"),
        rename_file("modeling_evil.py"),
        rename_file("x" * 5000 + ".json"),
        set_field("layer_count", 2**62),
        set_field("source", "\ud800"),
        set_field("tensors", []),
        set_tensor(sha256="../../../escaped"),
        set_tensor(sha256="0" * 63 + "/"),
        set_tensor(dtype="F32/../../x"),
        set_tensor(shape=["../x"]),
        set_tensor(size_bytes=2**62, shape=[2**60]),
    ],
)
async def test_a_manifest_that_leads_elsewhere_or_overflows_is_refused_before_a_byte_is_fetched(
    tmp_path: Path, change: Change
):
    model = LyingModel()
    model.change = change
    leader = LyingLeader(model)
    result = await load(leader, tmp_path / "home")

    assert result.failure.reason in (reason_pb2.REASON_SERVABLE_CORRUPT, reason_pb2.REASON_DISK)
    assert leader.fetched_bytes == 0
    assert not [name for name in files_below(tmp_path) if name.endswith((".part", ".safetensors"))]
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"[" * (20 * 2**20), reason_pb2.REASON_SERVABLE_CORRUPT),
        (b'{"format":1,"tensors":[' + b"[]," * 2_000_000 + b"1]}", reason_pb2.REASON_SERVABLE_CORRUPT),
        (b" " * (25 * 2**20), reason_pb2.REASON_SERVABLE_CORRUPT),
        (b"", reason_pb2.REASON_SERVABLE_CORRUPT),
        (b"\x80\x04\x95\x00", reason_pb2.REASON_SERVABLE_CORRUPT),
    ],
    ids=["deep", "wide", "long", "empty", "pickled"],
)
async def test_a_manifest_that_would_fill_memory_is_refused(tmp_path: Path, raw: bytes, reason: int):
    model = LyingModel()
    model.raw = raw
    result = await load(LyingLeader(model), tmp_path)

    assert result.failure.reason == reason
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 2**20


@pytest.mark.parametrize("sha256", ["../../../etc", "", "0" * 63, "a" * 10_000, "x\0y", "A" * 64])
async def test_a_hash_that_is_none_names_no_folder(tmp_path: Path, sha256: str):
    result = await load(LyingLeader(TinyModel()), tmp_path, manifest_sha256=sha256)

    assert result.failure.reason == reason_pb2.REASON_BAD_REQUEST
    assert "not the SHA-256 of a manifest" in result.failure.message


async def test_a_tensor_of_more_than_the_disk_is_refused_before_a_byte_of_it_is_fetched(tmp_path: Path):
    model = LyingModel()
    model.change = set_tensor(size_bytes=2**50, shape=[2**48])
    leader = LyingLeader(model)
    result = await load(leader, tmp_path)

    assert result.failure.reason == reason_pb2.REASON_DISK and str(2**50)[:4] in result.failure.message
    assert leader.fetched_bytes == 0
