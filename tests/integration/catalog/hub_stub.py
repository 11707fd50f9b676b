"""As much of a model hub as its own client asks for: model facts, file tree, files with ETag and ranges."""

import hashlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubStub:
    """One repository, org/tiny, from a folder. Tells what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commit = COMMIT
        self.token: str | None = None
        self.gated = False
        self.fetched: list[str] = []
        self.ranges: list[tuple[str, str]] = []  # file, Range header
        self.lfs: dict[str, str] = {}  # file -> SHA-256 the listing claims
        self.break_after: list[int] = []  # for the next answers of weight files: cut after so many bytes
        self.endpoint = ""
        self.app = web.Application()
        self.app.router.add_get("/api/models/{repo:.+?}/tree/{revision}", self._tree)
        self.app.router.add_get("/api/models/{repo:[^/]+/[^/]+}/revision/{revision}", self._facts)
        self.app.router.add_get("/api/models/{repo:[^/]+/[^/]+}", self._facts)
        self.app.router.add_get("/{repo:[^/]+/[^/]+}/resolve/{revision}/{file:.+}", self._file)

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401, headers={"X-Error-Code": "RepoNotFound"})
        if self.gated:
            return web.Response(status=403, headers={"X-Error-Code": "GatedRepo"})
        if request.match_info["repo"] != "org/tiny":
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        if request.match_info.get("revision", "main") not in ("main", "v1", self.commit):
            return web.Response(status=404, headers={"X-Error-Code": "RevisionNotFound"})
        return None

    async def _facts(self, request: web.Request) -> web.Response:
        names = [{"rfilename": path.name} for path in self.folder.iterdir()]
        facts = {"_id": "1", "id": "org/tiny", "sha": self.commit, "private": False, "tags": [], "siblings": names}
        return self._refusal(request) or web.json_response({**facts, "downloads": 0, "likes": 0})

    async def _tree(self, request: web.Request) -> web.Response:
        files = [
            {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": _etag(path)} | self._lfs_of(path)
            for path in sorted(self.folder.iterdir())
        ]
        folder = {"type": "directory", "path": "original", "size": 0, "oid": "0"}
        return self._refusal(request) or web.json_response([folder, *files])

    async def _file(self, request: web.Request) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        path = self.folder / request.match_info["file"]
        if request.method == "GET":
            self.fetched.append(path.name)
            self.ranges.append((path.name, request.headers.get("Range", "")))
        if request.method == "GET" and path.suffix == ".safetensors" and self.break_after:
            return await self._broken_answer(request, path, self.break_after.pop(0))
        headers = {"ETag": f'"{_etag(path)}"', "X-Repo-Commit": self.commit, "Accept-Ranges": "bytes"}
        return web.FileResponse(path, headers=headers)

    def _lfs_of(self, path: Path) -> dict[str, Any]:
        claimed = self.lfs.get(path.name)
        size = path.stat().st_size
        return {"lfs": {"size": size, "oid": claimed, "pointerSize": 100}} if claimed else {}

    async def _broken_answer(self, request: web.Request, path: Path, after: int) -> web.StreamResponse:
        """The range asked for, cut off in the middle: the connection ends."""
        span = request.http_range
        raw = path.read_bytes()[span.start : span.stop]
        begin = span.start or 0
        said = f"bytes {begin}-{begin + len(raw) - 1}/{path.stat().st_size}"
        response = web.StreamResponse(status=206, headers={"Content-Range": said, "Content-Length": str(len(raw))})
        await response.prepare(request)
        await response.write(raw[:after])
        assert request.transport is not None
        request.transport.close()
        return response


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


@asynccontextmanager
async def serve_hub(folder: Path):
    """A running stub."""
    hub = HubStub(folder)
    runner = web.AppRunner(hub.app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        await runner.cleanup()
