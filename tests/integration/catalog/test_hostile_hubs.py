"""A hub whose answers are an attack: it leads inside, never ends, or sends more than it said."""

import asyncio
import gzip
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from swarm_core.errors import BadRequest, SwarmError
from swarm_leader.catalog.importer import Hub, Importer

from tests.integration.catalog.checkpoints import names_in, nobody_listens, write_checkpoint
from tests.integration.catalog.hub_stub import COMMIT, HubStub

MIB = 2**20
LINKED = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": '"1"', "X-Linked-Size": "64"}  # as the real one, for large files
Answer = Callable[[web.Request], "asyncio.Future[web.StreamResponse | None]"]


class HostileHub(HubStub):
    """Answers as the stub unless `facts`, `tree` or `file` says otherwise."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answers: dict[str, Answer] = {}
        self.sent_bytes = 0

    async def _facts(self, request: web.Request) -> web.StreamResponse:
        return await self._answer("facts", request) or await super()._facts(request)

    async def _tree(self, request: web.Request) -> web.StreamResponse:
        return await self._answer("tree", request) or await super()._tree(request)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return await self._answer("file", request) or await super()._file(request)

    async def _answer(self, kind: str, request: web.Request) -> web.StreamResponse | None:
        answer = self.answers.get(kind)
        return await answer(request) if answer else None

    async def stream(
        self, request: web.Request, block: bytes, blocks: int, headers: dict[str, str]
    ) -> web.StreamResponse:
        """A body without a length."""
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for _ in range(blocks):
            await response.write(block)
            self.sent_bytes += len(block)
        return response


@asynccontextmanager
async def serving(app: web.Application):
    """host:port of a running application."""
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def hub(tmp_path: Path):
    """A running hostile hub over a good checkpoint."""
    hub = HostileHub(write_checkpoint(tmp_path / "repository"))
    async with serving(hub.app) as address:
        hub.endpoint = f"http://{address}"
        yield hub


@pytest.fixture
async def inside():
    """A service of the leader's own network: host:port, and what reached it."""
    reached: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.json_response({"secret": 1})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app) as address:
        yield address, reached


async def refused(hub: HostileHub, root: Path, source: str = "org/tiny") -> str:
    """Import from the hub, which must fail, leave nothing, and be over soon. Returns why."""
    with pytest.raises(SwarmError) as caught:
        async with asyncio.timeout(60):
            await Importer(root, hub=Hub(hub.endpoint, "hf_secret")).import_source(source, "m", "", nobody_listens)
    assert names_in(root) == []
    assert "hf_secret" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("kind", ["facts", "tree", "file"])
async def test_a_hub_that_redirects_inside_reaches_nothing(root: Path, hub: HostileHub, inside, kind: str):
    address, reached = inside

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://{address}/latest/meta-data", headers=LINKED)

    hub.answers[kind] = redirect

    assert "another host than the hub, without TLS" in await refused(hub, root)
    assert reached == []


@pytest.mark.parametrize(
    "place",
    [
        "https://localhost:{port}/x",
        "https://2130706433:{port}/x",
        "https://[::ffff:127.0.0.1]:{port}/x",
        "https://169.254.169.254/latest/meta-data",
    ],
)
async def test_a_place_inside_is_refused_however_its_address_is_written(
    root: Path, hub: HostileHub, inside, place: str
):
    address, reached = inside
    location = place.format(address=address, port=address.partition(":")[2])

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound(location, headers=LINKED)

    hub.answers["file"] = redirect

    assert "not of the public internet, nor the hub itself" in await refused(hub, root)
    assert reached == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://127.0.0.1:6379/_x"])
async def test_a_redirect_to_what_is_not_the_web_fetches_nothing(root: Path, hub: HostileHub, location: str):
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location, **LINKED})

    hub.answers["file"] = redirect

    assert await refused(hub, root)


async def test_a_weight_file_that_never_ends_is_cut_off(root: Path, hub: HostileHub):
    async def endless(request: web.Request) -> web.StreamResponse | None:
        if request.method == "HEAD" or request.match_info["file"] != "model.safetensors":
            return None
        return await hub.stream(request, b"x" * MIB, 4096, {"ETag": '"1"'})

    hub.answers["file"] = endless

    assert "promised" in await refused(hub, root)
    assert hub.sent_bytes < 256 * MIB


async def test_a_small_file_that_never_ends_is_cut_off(root: Path, hub: HostileHub):
    async def endless(request: web.Request) -> web.StreamResponse | None:
        if request.method == "HEAD" or request.match_info["file"] != "tokenizer.json":
            return None
        return await hub.stream(request, b"x" * MIB, 4096, {"ETag": '"1"'})

    hub.answers["file"] = endless

    assert "more of org/tiny than it promised" in await refused(hub, root)
    assert hub.sent_bytes < 256 * MIB


async def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_cut_off(root: Path, hub: HostileHub):
    bomb = gzip.compress(bytes(512 * MIB), 1)

    async def packed(request: web.Request) -> web.StreamResponse | None:
        if request.method == "HEAD" or request.match_info["file"] != "tokenizer.json":
            return None
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip", "ETag": '"1"'})

    hub.answers["file"] = packed

    assert "more of org/tiny than it promised" in await refused(hub, root)


async def test_an_answer_of_the_api_that_never_ends_costs_the_child_its_life_and_no_more(root: Path, hub: HostileHub):
    async def endless(request: web.Request) -> web.StreamResponse:
        return await hub.stream(request, b"[" * 8 * MIB, 1024, {"Content-Type": "application/json"})

    hub.answers["facts"] = endless

    assert await refused(hub, root)
    assert hub.sent_bytes < 4096 * MIB


async def test_a_list_of_files_that_never_ends_is_given_up(root: Path, hub: HostileHub):
    pages = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal pages
        pages += 1
        files = [{"type": "file", "path": f"{pages}-{number}", "size": 1, "oid": "0"} for number in range(1000)]
        return web.json_response(files, headers={"Link": f'<{hub.endpoint}{request.path}?cursor={pages}>; rel="next"'})

    hub.answers["tree"] = page

    assert "list of the files of org/tiny is no checkpoint's" in await refused(hub, root)
    assert pages <= 12


@pytest.mark.parametrize("size", [-1, 2**70])
async def test_a_size_that_is_none_is_refused(root: Path, hub: HostileHub, size: object):
    async def tree(request: web.Request) -> web.Response:
        return web.json_response([{"type": "file", "path": "config.json", "size": size, "oid": "0"}])

    hub.answers["tree"] = tree

    assert await refused(hub, root)


@pytest.mark.parametrize("commit", ["../../x", "a" * 10_000, None])
async def test_a_commit_that_is_none_is_refused(root: Path, hub: HostileHub, commit: object):
    async def facts(request: web.Request) -> web.Response:
        return web.json_response({"_id": "1", "id": "org/tiny", "sha": commit, "private": False, "tags": []})

    hub.answers["facts"] = facts

    assert await refused(hub, root)


async def test_names_that_lead_out_of_the_folder_are_not_fetched(root: Path, hub: HostileHub, tmp_path: Path):
    async def tree(request: web.Request) -> web.Response:
        names = [
            "../../evil.safetensors",
            "/etc/evil.safetensors",
            "a/b.safetensors",
            "..\\x.safetensors",
            "config.json",
        ]
        return web.json_response([{"type": "file", "path": name, "size": 1, "oid": "0"} for name in names])

    hub.answers["tree"] = tree

    assert await refused(hub, root)
    assert {*hub.fetched} <= {"config.json"}
    assert not list(tmp_path.rglob("*evil*"))


async def test_what_a_hub_says_is_shown_without_what_would_speak_to_a_terminal(root: Path, hub: HostileHub):
    async def facts(request: web.Request) -> web.Response:
        return web.Response(
            status=400, text=json.dumps({"error": "\x1b[2J\x1b]0;evil\x07 no"}), headers={"X-Error-Message": "x"}
        )

    hub.answers["facts"] = facts

    assert (await refused(hub, root)).isprintable()


@pytest.mark.parametrize(
    "source",
    [
        "http://127.0.0.1/x",
        "https://hub.example/a",
        "file:///etc/passwd",
        "org/../tiny",
        "org/tiny/../..",
        "org//tiny",
        "org/tiny?x=1",
        "org/tiny#x",
        "org/ti\0ny",
        "org/\u0442iny",
        "-org/tiny",
        "a" * 5000,
        "~\0/x",
        "~nobody-here/x",
    ],
)
async def test_an_id_that_is_a_path_or_an_address_never_reaches_the_hub(root: Path, hub: HostileHub, source: str):
    with pytest.raises(BadRequest):
        await Importer(root, hub=Hub(hub.endpoint)).import_source(source, "m", "", nobody_listens)

    assert hub.fetched == []


@pytest.mark.parametrize("revision", ["../../x", "a b", "x" * 300, "\0", "refs/../x", "-x", "a?b", "a#b"])
async def test_a_revision_that_is_none_is_refused(root: Path, hub: HostileHub, revision: str):
    with pytest.raises(BadRequest, match="is no revision"):
        await Importer(root, hub=Hub(hub.endpoint)).import_source("org/tiny", "m", revision, nobody_listens)
