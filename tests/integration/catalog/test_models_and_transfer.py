"""The Models and Transfer services over a real server: lists, imports with progress, bytes from any offset."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from silentswarm.fellow.v1 import transfer_pb2, transfer_pb2_grpc
from silentswarm.leader.v1 import models_pb2, models_pb2_grpc
from swarm_core.errors import Reason
from swarm_core.manifest import manifest_from_json, manifest_sha256, manifest_to_json
from swarm_core.servable_parts import HubOrigin
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.importer import Importer
from swarm_leader.rpc.models import ModelsServicer
from swarm_leader.rpc.transfer import CHUNK_BYTES, TransferServicer
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.server import listen, make_server

from tests.integration.catalog.checkpoints import llama_tensors, names_in, until, write_checkpoint
from tests.servables import make_adapter_folder, make_split_folder

BIG = "model.layers.0.big.weight"
BIG_BYTES = 3 * CHUNK_BYTES + 12


@dataclass
class Leader:
    """The two services on a port, and stubs to call them."""

    catalog: DiskCatalog
    root: Path
    source: Path
    models: models_pb2_grpc.ModelsStub
    transfer: transfer_pb2_grpc.TransferStub
    servicer: TransferServicer

    async def manifest(self) -> transfer_pb2.GetManifestResponse:
        """The manifest of org/tiny."""
        return await self.transfer.GetManifest(transfer_pb2.GetManifestRequest(model_id="org/tiny"))

    async def fetch(self, *items: transfer_pb2.FetchItem, sha256: str | None = None) -> list[transfer_pb2.FetchChunk]:
        """Every chunk of a fetch."""
        sha256 = sha256 or (await self.manifest()).manifest_sha256
        request = transfer_pb2.FetchRequest(model_id="org/tiny", manifest_sha256=sha256, items=items)
        return [chunk async for chunk in self.transfer.Fetch(request, timeout=20)]


@pytest.fixture
async def leader(root: Path, tmp_path: Path) -> AsyncIterator[Leader]:
    """A leader with org/tiny, one tensor of which spans several chunks."""
    tensors = llama_tensors() | {BIG: np.arange(BIG_BYTES // 4, dtype=np.float32)}
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    catalog = DiskCatalog(root)
    converter = [
        sys.executable,
        "-c",
        'import time; print(\'{"step": "convert", "done": 1, "total": 9}\', flush=True); time.sleep(60)',
    ]
    servicer = TransferServicer(catalog, fetches_max=2)
    server = make_server()
    importer = Importer(root, gguf_command=converter)
    models = ModelsServicer(catalog, importer, lambda model_id: f"state of {model_id}")
    models_pb2_grpc.add_ModelsServicer_to_server(models, server)
    transfer_pb2_grpc.add_TransferServicer_to_server(servicer, server)
    port = listen(server, "127.0.0.1:0")
    await server.start()
    async with dial(f"127.0.0.1:{port}") as channel:
        leader = Leader(
            catalog,
            root,
            source,
            models_pb2_grpc.ModelsStub(channel),
            transfer_pb2_grpc.TransferStub(channel),
            servicer,
        )
        await import_source(leader, source=str(source), model_id="org/tiny")
        yield leader
    await server.stop(0)


async def import_source(leader: Leader, **request: Any) -> list[models_pb2.ImportModelEvent]:
    """Every event of an import."""
    call = leader.models.ImportModel(models_pb2.ImportModelRequest(**request), timeout=30)
    return [event async for event in call]


async def refused(awaitable) -> tuple[Reason, str]:
    """Why a call failed."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await awaitable
    error = error_of(failure.value)
    return error.why, error.message


async def test_an_import_streams_progress_and_ends_with_the_model(leader: Leader):
    events = await import_source(leader, source=str(leader.source), model_id="again")

    assert [event.WhichOneof("event") for event in events[:-1]] == ["progress"] * (len(events) - 1)
    assert events[-1].model.model_id == "again"
    assert {event.progress.step for event in events[:-1]} == {"hash"}
    assert events[-2].progress.done == events[-2].progress.total > BIG_BYTES


async def test_a_model_is_described_with_its_numbers_and_its_state(leader: Leader):
    model = await leader.models.GetModel(models_pb2.GetModelRequest(model_id="org/tiny"))

    tensors = llama_tensors()
    assert model.parameter_count == sum(tensor.size for tensor in tensors.values()) + BIG_BYTES // 4
    assert model.weight_bytes == 4 * model.parameter_count
    assert (model.model_type, model.layer_count, model.context_tokens_max) == ("llama", 2, 128)
    assert (model.source, model.state, model.broken) == (str(leader.source), "state of org/tiny", "")
    assert model.created_s > 1_700_000_000


async def test_the_list_has_the_broken_ones_with_their_reason(leader: Leader):
    shutil.copytree(leader.root / "org---tiny", leader.root / "broken")
    (leader.root / "broken/servable.json").write_text("{}")
    listed = (await leader.models.ListModels(models_pb2.ListModelsRequest())).models

    assert [(model.model_id, bool(model.broken)) for model in listed] == [("broken", True), ("org/tiny", False)]
    one = await leader.models.GetModel(models_pb2.GetModelRequest(model_id="broken"))
    assert one == listed[0] and "servable.json cannot be read" in one.broken


async def test_an_unknown_model_is_not_found_and_told_what_exists(leader: Leader):
    why, words = await refused(leader.models.GetModel(models_pb2.GetModelRequest(model_id="nothing")))

    assert why is Reason.MODEL_NOT_FOUND and "available: org/tiny" in words


async def test_an_import_that_fails_ends_the_stream_with_the_reason(leader: Leader):
    why, words = await refused(import_source(leader, source="/nowhere", model_id="x"))
    assert why is Reason.BAD_REQUEST and "no such folder or file: /nowhere" in words

    why, _ = await refused(import_source(leader, source=str(leader.source), model_id="../x"))
    assert why is Reason.BAD_REQUEST


async def test_a_client_that_leaves_ends_its_import(leader: Leader, tmp_path: Path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(20))
    call = leader.models.ImportModel(models_pb2.ImportModelRequest(source=str(tmp_path / "x.gguf"), model_id="x"))
    async for event in call:
        if event.progress.done == 1:
            break
    assert len(names_in(leader.root)) == 2
    call.cancel()

    await until(lambda: names_in(leader.root) == ["org---tiny"])


async def test_the_manifest_is_the_file_and_its_hash(leader: Leader):
    answer = await leader.manifest()

    assert answer.manifest_json == (leader.root / "org---tiny/servable.json").read_bytes()
    assert answer.manifest_sha256 == manifest_sha256(answer.manifest_json)


async def test_tensors_and_files_arrive_whole_in_the_order_asked(leader: Leader):
    manifest = leader.catalog.get("org/tiny")
    names = ["model.norm.weight", BIG, "model.embed_tokens.weight"]
    items = [transfer_pb2.FetchItem(tensor=name) for name in names] + [
        transfer_pb2.FetchItem(file="tokenizer/tokenizer.json")
    ]
    chunks = await leader.fetch(*items)

    assert [chunk.item for chunk in chunks] == [0, 1, 1, 1, 1, 2, 3]
    assert max(len(chunk.data) for chunk in chunks) == CHUNK_BYTES
    received = [b"".join(chunk.data for chunk in chunks if chunk.item == item) for item in range(4)]
    wanted = [manifest.tensors[name].sha256 for name in names] + [manifest.files["tokenizer/tokenizer.json"].sha256]
    assert [hashlib.sha256(raw).hexdigest() for raw in received] == wanted


@pytest.mark.parametrize("offset", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 5, BIG_BYTES - 1, BIG_BYTES])
async def test_a_broken_fetch_goes_on_from_any_byte(leader: Leader, offset: int):
    whole = np.arange(BIG_BYTES // 4, dtype=np.float32).tobytes()
    chunks = await leader.fetch(transfer_pb2.FetchItem(tensor=BIG, offset=offset))

    assert b"".join(chunk.data for chunk in chunks) == whole[offset:]
    positions = [chunk.offset for chunk in chunks]
    assert positions == list(range(offset, BIG_BYTES, CHUNK_BYTES))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (transfer_pb2.FetchItem(tensor="model.nothing"), "has no tensor 'model.nothing'"),
        (transfer_pb2.FetchItem(file="../../../etc/passwd"), "has no file"),
        (transfer_pb2.FetchItem(file="servable.json"), "has no file"),
        (transfer_pb2.FetchItem(file="base/model.safetensors"), "has no file"),
        (transfer_pb2.FetchItem(), "has no tensor or file"),
        (transfer_pb2.FetchItem(tensor="model.norm.weight", offset=33), "offset 33 is beyond its 32 bytes"),
        (transfer_pb2.FetchItem(tensor="model.norm.weight", offset=2**64 - 1), "beyond"),
    ],
)
async def test_a_fetch_of_what_is_not_there_is_refused_before_any_byte(leader: Leader, item, words: str):
    why, said = await refused(leader.fetch(transfer_pb2.FetchItem(tensor=BIG), item))

    assert why is Reason.BAD_REQUEST and said.startswith("item 1: ") and words in said


async def test_a_fetch_by_another_manifest_is_a_conflict(leader: Leader):
    why, _ = await refused(leader.fetch(transfer_pb2.FetchItem(tensor=BIG), sha256="0" * 64))

    assert why is Reason.CONFLICT


async def test_weights_cut_after_the_listing_end_the_fetch_with_a_reason(leader: Leader):
    item = transfer_pb2.FetchItem(tensor=BIG)
    sha256 = (await leader.manifest()).manifest_sha256
    os.truncate(leader.root / "org---tiny/base/model.safetensors", CHUNK_BYTES)
    why, words = await refused(leader.fetch(item, sha256=sha256))

    assert why is Reason.SERVABLE_CORRUPT and "changed since it was listed" in words


async def test_fetches_are_bounded_and_a_fellow_that_leaves_frees_its_place(leader: Leader):
    sha256 = (await leader.manifest()).manifest_sha256
    endless = [transfer_pb2.FetchItem(tensor=BIG)] * 200
    request = transfer_pb2.FetchRequest(model_id="org/tiny", manifest_sha256=sha256, items=endless)
    calls = [leader.transfer.Fetch(request) for _ in range(2)]
    for call in calls:
        await call.read()  # and never reads again: the leader waits, it does not pile up
    why, _ = await refused(leader.fetch(transfer_pb2.FetchItem(tensor=BIG), sha256=sha256))
    assert why is Reason.OVERLOADED
    for call in calls:
        call.cancel()

    await until(lambda: leader.servicer._fetches == 0)
    assert len(await leader.fetch(transfer_pb2.FetchItem(tensor=BIG), sha256=sha256)) == 4


async def test_a_fellow_that_never_reads_loses_its_place_to_others(leader: Leader):
    """64 fetches that nobody read once kept every load of the fleet waiting."""
    leader.servicer._take_timeout_s = 0.3
    sha256 = (await leader.manifest()).manifest_sha256
    endless = [transfer_pb2.FetchItem(tensor=BIG)] * 200
    call = leader.transfer.Fetch(transfer_pb2.FetchRequest(model_id="org/tiny", manifest_sha256=sha256, items=endless))
    await call.read()

    await until(lambda: leader.servicer._fetches == 0)
    call.cancel()
    assert len(await leader.fetch(transfer_pb2.FetchItem(tensor=BIG), sha256=sha256)) == 4


async def test_a_whole_model_can_be_rebuilt_from_one_fetch(leader: Leader):
    manifest = json.loads((await leader.manifest()).manifest_json)
    names = list(manifest["tensors"])
    chunks = await leader.fetch(*(transfer_pb2.FetchItem(tensor=name) for name in names))

    total = sum(len(chunk.data) for chunk in chunks)
    assert total == sum(entry["size_bytes"] for entry in manifest["tensors"].values())


async def test_an_adapter_is_imported_for_the_base_that_was_asked_for_and_both_say_so(leader: Leader, tmp_path: Path):
    folder = make_adapter_folder(leader.source, tmp_path / "adapter", 4, 1, base="/somewhere/else")
    why, words = await refused(import_source(leader, source=str(folder), model_id="tuned"))
    assert why is Reason.BAD_REQUEST and "is for '/somewhere/else'" in words

    events = await import_source(leader, source=str(folder), model_id="tuned", base_model_id=" org/tiny ")

    adapter = events[-1].model
    assert adapter.adapter == models_pb2.Adapter(base_model_id="org/tiny", rank=4, targets=["q_proj"])
    assert (adapter.layer_count, adapter.adapters, adapter.HasField("split")) == (2, [], False)
    base = await leader.models.GetModel(models_pb2.GetModelRequest(model_id="org/tiny"))
    assert base.adapters == ["tuned"] and not base.HasField("adapter")


async def test_the_tensors_of_an_adapter_are_fetched_like_others(leader: Leader, tmp_path: Path):
    folder = make_adapter_folder(leader.source, tmp_path / "adapter", 4, 1, base="tiny")
    await import_source(leader, source=str(folder), model_id="tuned")
    answer = await leader.transfer.GetManifest(transfer_pb2.GetManifestRequest(model_id="tuned"))
    manifest = manifest_from_json(answer.manifest_json)
    items = [transfer_pb2.FetchItem(tensor=name) for name in manifest.tensors]
    request = transfer_pb2.FetchRequest(model_id="tuned", manifest_sha256=answer.manifest_sha256, items=items)
    chunks = [chunk async for chunk in leader.transfer.Fetch(request, timeout=20)]

    hashes = [hashlib.sha256(chunk.data).hexdigest() for chunk in chunks]
    assert hashes == [entry.sha256 for entry in manifest.tensors.values()]
    assert "adapter_config.json" in manifest.files


async def test_a_model_says_where_training_cut_it_and_how_it_is_held(leader: Leader, tmp_path: Path):
    source = write_checkpoint(tmp_path / "plain")
    folder = make_split_folder(source, tmp_path / "export", [1], codecs=["int4"], quantization={"bits": 8})
    model = (await import_source(leader, source=str(folder), model_id="trained"))[-1].model

    assert model.quantization.method == "int8"
    split = model.split
    assert (split.stage_count, split.recorded) == (2, True)
    assert [(shard.layer_start, shard.layer_stop, shard.codec_out) for shard in split.shards] == [
        (0, 1, "int4"),
        (1, 2, ""),
    ]
    assert sum(shard.weight_bytes for shard in split.shards) == model.weight_bytes
    assert split.shards[0].weight_bytes > split.shards[1].weight_bytes  # it has the embeddings
    plain = await leader.models.GetModel(models_pb2.GetModelRequest(model_id="org/tiny"))
    assert not plain.HasField("split") and not plain.HasField("quantization")


async def test_weights_that_are_on_a_hub_are_asked_for_there_and_small_files_here(leader: Leader):
    """The fellow is told where: facts of the error, for one whose release does not know the manifest's origin."""
    folder = leader.root / "elsewhere"
    shutil.copytree(leader.root / "org---tiny", folder)
    shutil.rmtree(folder / "base")
    manifest = leader.catalog.get("org/tiny")
    moved = replace(manifest, model_id="elsewhere", origin=HubOrigin("org/tiny", "a" * 40, "http://hub.example"))
    (folder / "servable.json").write_bytes(manifest_to_json(moved))
    answer = await leader.transfer.GetManifest(transfer_pb2.GetManifestRequest(model_id="elsewhere"))

    async def fetch(item: transfer_pb2.FetchItem) -> list[transfer_pb2.FetchChunk]:
        sha256 = answer.manifest_sha256
        request = transfer_pb2.FetchRequest(model_id="elsewhere", manifest_sha256=sha256, items=[item])
        return [chunk async for chunk in leader.transfer.Fetch(request, timeout=20)]

    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await fetch(transfer_pb2.FetchItem(tensor=BIG))
    error = error_of(failure.value)
    assert error.why is Reason.BAD_REQUEST and "fetches them from org/tiny at aaaa" in error.message
    place = {key: error.facts[key] for key in ("repository", "commit", "endpoint")}
    assert place == {"repository": "org/tiny", "commit": "a" * 40, "endpoint": "http://hub.example"}
    assert (await fetch(transfer_pb2.FetchItem(file="config.json")))[0].data
    model = await leader.models.GetModel(models_pb2.GetModelRequest(model_id="elsewhere"))
    assert model.weights_from == f"http://hub.example/org/tiny/tree/{'a' * 40}"


async def test_only_a_hub_id_is_imported_by_reference(leader: Leader):
    why, words = await refused(import_source(leader, source=str(leader.source), model_id="x", by_reference=True))

    assert why is Reason.BAD_REQUEST and "only a hub id" in words
