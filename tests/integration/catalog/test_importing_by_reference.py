"""A hub id by reference: the weights pass by once, none is kept, and what is known of them is as good as ever."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, TypeVar

import huggingface_hub
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from swarm_core.errors import BadRequest, ServableCorrupt, SwarmError, Unavailable
from swarm_core.manifest import Manifest, manifest_from_json
from swarm_core.servable_parts import HubOrigin
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.hub_weights import HubReader, RemoteFile, read_weights
from swarm_leader.catalog.importer import Hub, Importer
from swarm_leader.catalog.reference import READ_NAME
from swarm_leader.catalog.sources.header import TensorSpan

from tests.integration.catalog.checkpoints import llama_tensors, names_in, nobody_listens, write_checkpoint
from tests.integration.catalog.hub_stub import COMMIT, HubStub, serve_hub
from tests.servables import make_adapter_folder

T = TypeVar("T")


async def import_by_reference(
    hub: HubStub, root: Path, on_progress=nobody_listens, token: str | None = None
) -> Manifest:
    importer = Importer(root, hub=Hub(hub.endpoint, token))
    async with asyncio.timeout(60):
        return await importer.import_source("org/tiny", "", "", on_progress, by_reference=True)


async def refused(hub: HubStub, root: Path) -> SwarmError:
    """Import by reference, which must fail and leave nothing. Returns why."""
    with pytest.raises(SwarmError) as caught:
        await import_by_reference(hub, root)
    assert names_in(root) == []
    return caught.value


@pytest.mark.parametrize("shards", [1, 3])
async def test_the_manifest_has_every_hash_and_the_place_of_every_tensor_on_the_hub(
    root: Path, tmp_path: Path, shards: int
):
    tensors = llama_tensors(seed=4)
    repository = write_checkpoint(tmp_path / "repository", tensors=tensors, shards=shards)
    steps: list[tuple[str, int, int]] = []
    async with serve_hub(repository) as hub:
        manifest = await import_by_reference(hub, root, lambda *step: steps.append(step))
        assert manifest.origin == HubOrigin("org/tiny", COMMIT, hub.endpoint)

    assert set(manifest.tensors) == set(tensors)
    for name, entry in manifest.tensors.items():
        raw = (repository / entry.file).read_bytes()[entry.begin : entry.begin + entry.size_bytes]
        assert raw == tensors[name].tobytes()
        assert entry.sha256 == hashlib.sha256(raw).hexdigest()
    assert not list(root.rglob("*.safetensors"))
    assert set(manifest.files) >= {"config.json", "tokenizer/tokenizer.json"}
    assert manifest_from_json((root / "org---tiny/servable.json").read_bytes()) == manifest
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert (catalog.get("org/tiny"), catalog.broken()) == (manifest, {})
    hashed = sum((repository / file).stat().st_size for file in {entry.file for entry in manifest.tensors.values()})
    assert steps[-1] == ("hash", hashed, hashed)


async def test_each_weight_passes_by_once_and_a_line_that_breaks_is_taken_up_where_it_broke(root: Path, tmp_path: Path):
    tensors = llama_tensors() | {"model.layers.0.big.weight": np.arange(2**20, dtype=np.float32)}
    repository = write_checkpoint(tmp_path / "repository", tensors=tensors)
    size = (repository / "model.safetensors").stat().st_size
    async with serve_hub(repository) as hub:
        hub.break_after = [8, 10_000, 3_000_000, 70_000]  # the header's length, the header, twice in the tensors
        manifest = await import_by_reference(hub, root)
        asked = [said for file, said in hub.ranges if file == "model.safetensors"]

    whole = asked[2:]
    begins = [int(said.removeprefix("bytes=").partition("-")[0]) for said in whole]
    assert begins == sorted(set(begins)) and len(begins) == 3 and begins[0] == 0
    assert {said.rpartition("-")[2] for said in whole} == {str(size - 1)}
    big = tensors["model.layers.0.big.weight"].tobytes()
    assert manifest.tensors["model.layers.0.big.weight"].sha256 == hashlib.sha256(big).hexdigest()


async def test_the_same_commit_again_reads_nothing_and_keeping_the_weights_is_another_import(
    root: Path, tmp_path: Path
):
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        first = await import_by_reference(hub, root)
        hub.fetched.clear()
        assert (await import_by_reference(hub, root), hub.fetched) == (first, [])
        kept = await Importer(root, hub=Hub(hub.endpoint)).import_source("org/tiny", "", "", nobody_listens)

    assert kept.origin is None and (root / "org---tiny/base/model.safetensors").is_file()
    assert {name: entry.sha256 for name, entry in kept.tensors.items()} == {
        name: entry.sha256 for name, entry in first.tensors.items()
    }


async def test_a_private_model_is_read_with_the_token_which_the_manifest_does_not_have(root: Path, tmp_path: Path):
    async with serve_hub(write_checkpoint(tmp_path / "repository")) as hub:
        hub.token = "hf_secret"
        await import_by_reference(hub, root, token="hf_secret")

    assert b"hf_secret" not in (root / "org---tiny/servable.json").read_bytes()


async def test_the_hash_the_listing_names_is_compared(root: Path, tmp_path: Path):
    repository = write_checkpoint(tmp_path / "repository")
    async with serve_hub(repository) as hub:
        hub.lfs["model.safetensors"] = "0" * 64
        assert "is not what the hub says it is" in (await refused(hub, root)).message
        hub.lfs["model.safetensors"] = hashlib.sha256((repository / "model.safetensors").read_bytes()).hexdigest()
        manifest = await import_by_reference(hub, root)

    assert manifest.origin is not None


async def test_only_hub_ids_are_imported_by_reference_and_no_adapters(root: Path, tmp_path: Path):
    source = write_checkpoint(tmp_path / "source")
    with pytest.raises(BadRequest, match="only a hub id is imported by reference"):
        await Importer(root).import_source(str(source), "m", "", nobody_listens, by_reference=True)
    async with serve_hub(make_adapter_folder(source, tmp_path / "a", 2, 1)) as hub:
        assert "is a LoRA adapter" in (await refused(hub, root)).message


def rewritten(raw: bytes, length: int | None = None) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        start = (len(raw) if length is None else length).to_bytes(8, "little")
        (folder / "model.safetensors").write_bytes(start + raw + bytes(64))

    return spoil


def with_tensors(**tensors: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: save_file(llama_tensors() | tensors, folder / "model.safetensors")


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


OVERLAPPING = (
    b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"b":{"dtype":"F32","shape":[8],"data_offsets":[4,36]}}'
)
HOSTILE: list[tuple[Callable[[Path], None], str]] = [
    (rewritten(b"{}", 2**60), r"the header claims 1152921504606846976 bytes"),
    (rewritten(OVERLAPPING), r"overlap"),
    (rewritten(b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,32]}}'), r"is 36 bytes, its range 32"),
    (rewritten(b'{"a":{"dtype":"F32","shape":[800],"data_offsets":[0,3200]}}'), r"lies outside"),
    (rewritten(b'{"a":{"dtype":"X","shape":[8],"data_offsets":[0,32]}}'), r"dtype 'X', which is not served"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"abc"), r"the header claims"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x02}q\x00." * 9), r"looks like pickled"),
    (with_tensors(evil=np.ones(2, np.float32)), r"'evil' is not part of a llama text model"),
    (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), r"weights are pickled"),
    (removed("tokenizer.json"), r"has no tokenizer"),
    (removed("config.json"), r"has no config.json"),
    (lambda folder: (folder / "config.json").write_text('{"model_type": "mamba"}'), r"'mamba' is not served"),
    (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"model.norm.weight": "../../evil.safetensors"}})
        ),
        r"not a safetensors file beside it",
    ),
    (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"model.norm.weight": "gone.safetensors"}})
        ),
        r"gone.safetensors is missing from the repository",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), HOSTILE, ids=[words[:40] for _, words in HOSTILE])
async def test_a_repository_that_is_damaged_or_hostile_is_refused_before_its_weights_are_read(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
):
    repository = write_checkpoint(tmp_path / "repository")
    spoil(repository)
    async with serve_hub(repository) as hub:
        at = f"{hub.endpoint}/org/tiny/resolve/main"
        files = {
            path.name: RemoteFile(path.name, f"{at}/{path.name}", path.stat().st_size) for path in repository.iterdir()
        }
        with pytest.raises((BadRequest, ServableCorrupt), match=words):
            await asyncio.to_thread(with_reader, lambda reader: read_weights(reader, files, repository, nobody_listens))

    path = repository / "model.safetensors"
    whole = f"bytes=0-{path.stat().st_size - 1}" if path.exists() and path.stat().st_size > 8 else "none"
    assert whole not in [said for _, said in hub.ranges]
    assert not (repository / READ_NAME).exists()


async def test_what_is_refused_by_reference_leaves_nothing(root: Path, tmp_path: Path):
    repository = write_checkpoint(tmp_path / "repository")
    rewritten(OVERLAPPING)(repository)
    async with serve_hub(repository) as hub:
        why = await refused(hub, root)

    assert isinstance(why, BadRequest) and "overlap" in why.message


def with_reader(work: Callable[[HubReader], T]) -> T:
    """Run work that reads from a hub, with the hub client's own HTTP client and no pauses worth it."""
    with type(huggingface_hub.get_session())(timeout=20) as client:
        return work(HubReader(client, {}, pause_s=0.001))


async def test_a_weight_file_that_redirects_inside_reaches_nothing(root: Path, tmp_path: Path):
    reached: list[str] = []

    async def inside(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(body=bytes(100))

    def redirect(request: web.Request, raw: bytes) -> web.StreamResponse:
        raise web.HTTPFound(f"http://{address}/latest/meta-data")

    async with serving(inside) as address, serving_odd(write_checkpoint(tmp_path / "repository"), redirect) as hub:
        assert "another host than the hub, without TLS" in (await refused(hub, root)).message

    assert reached == []


class OddHub(HubStub):
    """Answers for weight files as `answer` says."""

    answer: Callable[[web.Request, bytes], web.StreamResponse]

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(".safetensors"):
            return await super()._file(request)
        return self.answer(request, (self.folder / request.match_info["file"]).read_bytes())


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    """host:port of a server that answers everything so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_odd(folder: Path, answer: Any) -> AsyncIterator[OddHub]:
    """A running odd hub."""
    hub = OddHub(folder)
    hub.answer = answer
    runner = web.AppRunner(hub.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hub.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        await runner.cleanup()


RAW = bytes(range(256)) * 12_000  # three blocks and a bit


async def read_all(answer: Any, begin: int = 0, stop: int = len(RAW), size_bytes: int = len(RAW)) -> list[bytes]:
    """What a reader makes of a server that answers so."""

    async def answered(request: web.Request) -> web.StreamResponse:
        return answer(request)

    async with serving(answered) as address:
        file = RemoteFile("w.safetensors", f"http://{address}/w", size_bytes)
        return await asyncio.to_thread(with_reader, lambda reader: list(reader.blocks(file, begin, stop)))


def ranged(request: web.Request, **changes: Any) -> web.Response:
    """The range asked for, as servers send it."""
    span = request.http_range
    body = RAW[span.start : span.stop]
    headers = {"Content-Range": f"bytes {span.start}-{span.start + len(body) - 1}/{len(RAW)}", **changes}
    return web.Response(status=206, body=body, headers=headers)


async def test_a_range_comes_in_blocks_that_memory_can_hold():
    blocks = await read_all(ranged, 5, len(RAW) - 7)

    assert b"".join(blocks) == RAW[5:-7]
    assert max(map(len, blocks)) <= 2**20


async def test_a_hub_that_knows_no_ranges_is_read_from_its_beginning():
    assert b"".join(await read_all(lambda request: web.Response(body=RAW), 300_000, 300_010)) == RAW[300_000:300_010]


async def test_more_than_was_asked_for_is_not_taken():
    endless = {"Content-Range": f"bytes 0-9/{len(RAW)}"}

    assert await read_all(lambda request: web.Response(status=206, body=RAW, headers=endless), 0, 10) == [RAW[:10]]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (lambda request: ranged(request, **{"Content-Range": f"bytes 7-99/{len(RAW)}"}), ServableCorrupt, "bytes 7-99"),
        (lambda request: ranged(request, **{"Content-Range": "bytes 0-9/10"}), ServableCorrupt, "it listed"),
        (lambda request: ranged(request, **{"Content-Range": "x"}), ServableCorrupt, "it listed"),
        (lambda request: ranged(request, **{"Content-Encoding": "br"}), Unavailable, "answers 206"),
        (lambda request: web.Response(status=404), Unavailable, "answers 404"),
        (lambda request: web.Response(status=503), Unavailable, "breaks off at byte 0 of .* the hub answers 503"),
        (lambda request: web.Response(body=b""), Unavailable, "ended the answer early"),
    ],
)
async def test_a_hub_that_answers_something_else_is_given_up(answer: Any, kind: type[SwarmError], words: str):
    with pytest.raises(kind, match=words):
        await read_all(answer)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=8), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_every_tensor_gets_its_own_hash_however_the_bytes_arrive(cuts: list[int], sizes: list[int]):
    """Tensors touch, are empty, or leave gaps; blocks end anywhere."""
    raw = bytes(range(61))
    edges = sorted({0, *cuts, len(raw)})
    spans = {
        f"t{at}": TensorSpan(begin, stop - begin, "U8", (stop - begin,))
        for at, (begin, stop) in enumerate(pairwise(edges))
    }
    spans |= {f"e{at}": TensorSpan(at, 0, "U8", (0,)) for at in cuts}
    spans.pop("t1", None)

    class Blocks(HubReader):
        def blocks(self, file: RemoteFile, begin: int, stop: int) -> Iterator[bytes]:
            for size in cycle(sizes):
                if begin >= stop:
                    return
                yield raw[begin : min(begin + size, stop)]
                begin += size

    passed: list[int] = []
    hashes = Blocks(None, {}).hashes(RemoteFile("f", "u", len(raw)), spans, passed.append)

    assert sum(passed) == len(raw)
    assert hashes == {
        name: hashlib.sha256(raw[span.begin : span.begin + span.size_bytes]).hexdigest() for name, span in spans.items()
    }
