"""Brings a checkpoint into the catalog: finds out what the source is, fetches or converts it, publishes it whole.

The same source under the same id is harmless; another source replaces the servable unless it is loaded, or is of
another kind (an adapter, a whole model).
"""

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from swarm_core.clock import Clock, SystemClock
from swarm_core.errors import BadRequest, Conflict, DiskFull, Overloaded, PermissionDenied, SwarmError
from swarm_core.manifest import Manifest
from swarm_core.servable_parts import HubOrigin

from swarm_leader.catalog.assemble import assemble
from swarm_leader.catalog.disk import DiskCatalog, read_servable
from swarm_leader.catalog.import_roots import NO_ROOTS, ImportRoots
from swarm_leader.catalog.names import folder_of, model_id_from_source
from swarm_leader.catalog.progress import OnProgress, Progress
from swarm_leader.catalog.reference import write_reference
from swarm_leader.catalog.sources.adapter import Adapter
from swarm_leader.catalog.sources.checkpoint import Checkpoint
from swarm_leader.catalog.sources.read_source import read_source
from swarm_leader.catalog.sources.small_files import fingerprint_files
from swarm_leader.catalog.steps import Step, run_step
from swarm_leader.catalog.workplace import clean_leftovers, open_workplace, publish

IMPORTS_MAX = 2  # each hashes on one core and fills one disk
HUB_COMMAND = (sys.executable, "-m", "swarm_leader.catalog.hub")
GGUF_COMMAND = (sys.executable, "-m", "swarm_stage.convert")
GGUF_MAGIC = b"GGUF"
_GGUF_HEADER_BYTES = 24  # magic, version, number of tensors, number of facts
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]{0,199}", re.ASCII)
T = TypeVar("T")


@dataclass(frozen=True)
class Hub:
    """Where hub ids are looked up. None: what HF_ENDPOINT and HF_TOKEN say, as the hub client reads them."""

    endpoint: str | None = None
    token: str | None = None


class Importer:
    """Imports into `root`, two at once at most. Making one removes what killed imports left there.

    is_loaded: whether a model is in use now and must not be replaced.
    """

    def __init__(
        self,
        root: Path,
        is_loaded: Callable[[str], bool] = lambda model_id: False,
        hub: Hub = Hub(),
        clock: Clock | None = None,
        gguf_command: Sequence[str] = GGUF_COMMAND,
        roots: ImportRoots = NO_ROOTS,
    ) -> None:
        self._root = root
        self._is_loaded = is_loaded
        self._hub = hub
        self._clock = clock or SystemClock()
        self._gguf_command = gguf_command
        self._roots = roots
        self._catalog = DiskCatalog(root)
        self._running: set[str] = set()
        self._threads = ThreadPoolExecutor(IMPORTS_MAX, thread_name_prefix="import")
        clean_leftovers(root)

    async def import_source(
        self,
        source: str,
        model_id: str,
        revision: str,
        on_progress: OnProgress,
        is_local: bool = True,
        base_model_id: str = "",
        by_reference: bool = False,
    ) -> Manifest:
        """Import a folder, a .gguf file (absolute paths) or a hub id; returns its manifest, published and durable.

        is_local: whether somebody on this machine asks; see ImportRoots.
        model_id: empty makes one from the source. revision: of a hub id; empty is its main branch.
        base_model_id: what a LoRA adapter is for; empty is what it says itself. by_reference: of a hub id: read the
        weights once, keep none.
        on_progress: called on this event loop, at most about every 0.3 s. Cancelling leaves nothing behind.
        Raises BadRequest, PermissionDenied (the path), ServableCorrupt, Conflict (running already, loaded, of another
        kind), Overloaded, DiskFull, Unavailable (the hub), LoadFailed (a step broke).
        """
        kind, path = await asyncio.to_thread(_kind_of, source, self._roots, is_local)
        if by_reference and kind != "hub":
            raise BadRequest("only a hub id is imported by reference; this source is a file or folder", field="source")
        model_id = model_id or model_id_from_source(source)
        target = self._root / folder_of(model_id)
        if model_id in self._running:
            raise Conflict(f"model {model_id} is being imported already", model_id=model_id)
        if len(self._running) >= IMPORTS_MAX:
            raise Overloaded(
                f"{len(self._running)} imports are running, which is the most at once", running=IMPORTS_MAX
            )
        self._running.add(model_id)
        progress = Progress(on_progress)
        try:
            with open_workplace(self._root) as workplace:
                running = _Import(
                    model_id=model_id,
                    target=target,
                    workplace=workplace,
                    progress=progress,
                    hub=self._hub,
                    gguf_command=self._gguf_command,
                    clock=self._clock,
                    is_loaded=self._is_loaded,
                    in_thread=self._in_thread,
                    catalog=self._catalog,
                    base_model_id=base_model_id,
                    by_reference=by_reference,
                )
                return await running.start(kind, path, source, revision)
        except OSError as error:
            raise DiskFull(f"{self._root} cannot be used: {error.strerror or error}") from error
        finally:
            progress.close()
            self._running.discard(model_id)

    async def _in_thread(self, work: Callable[[threading.Event], T]) -> T:
        """Run blocking work that looks at its stop flag; when cancelled, waits until it has stopped."""
        stop = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, stop)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({running})
            raise


@dataclass(frozen=True)
class _Import:
    """One import on its way. in_thread: runs blocking work beside the event loop."""

    model_id: str
    target: Path
    workplace: Path
    progress: Progress
    hub: Hub
    gguf_command: Sequence[str]
    clock: Clock
    is_loaded: Callable[[str], bool]
    in_thread: Callable[[Callable[[threading.Event], Any]], Awaitable[Any]]
    catalog: DiskCatalog
    base_model_id: str
    by_reference: bool

    async def start(self, kind: str, path: Path, source: str, revision: str) -> Manifest:
        """Take the way of this kind of source."""
        if kind != "hub" and revision:
            raise BadRequest("a revision belongs to a hub id; this source is a file or folder", field="revision")
        if revision and not _REVISION.fullmatch(revision):
            raise BadRequest(f"{revision[:100]!r} is no revision: a branch, a tag or a commit", field="revision")
        if kind == "hub":
            return await self._from_hub(source, revision)
        if kind == "gguf":
            return await self._from_gguf(path)
        return await self._from_folder(path, source, None)

    async def _from_folder(self, folder: Path, source: str, origin: dict[str, str] | None) -> Manifest:
        """origin: what identifies the source when the folder is only our copy of it."""
        found = await self.in_thread(lambda stop: self._look_at(folder))
        origin = origin or {"fingerprint": found.fingerprint}
        if (existing := await self._existing(origin)) is not None:
            return existing
        await self._check_kind(isinstance(found, Adapter))
        servable = self.workplace / "servable"
        created_s = int(self.clock.unix_s())
        manifest = await self.in_thread(
            lambda stop: assemble(found, servable, self.model_id, source, origin, created_s, self.progress.report, stop)
        )
        return await self._publish(servable, manifest)

    def _look_at(self, folder: Path) -> Checkpoint | Adapter:
        self.catalog.refresh()
        return read_source(folder, self.base_model_id, self.catalog.manifests())

    async def _publish(self, servable: Path, manifest: Manifest) -> Manifest:
        self._check_free()  # it may have been loaded meanwhile
        await self.in_thread(lambda stop: publish(self.workplace, servable, self.target))
        return manifest

    async def _from_gguf(self, path: Path) -> Manifest:
        origin = await self.in_thread(lambda stop: {"fingerprint": fingerprint_files([path.resolve()])})
        if (existing := await self._existing(origin)) is not None:
            return existing
        folder = self.workplace / "source"
        folder.mkdir()
        command = [*self.gguf_command, str(path), str(folder)]
        self.progress.report("convert", 0, 0)
        await run_step(Step("convert", command, needs="stage"), self._on_line)
        return await self._from_folder(folder, str(path), origin)

    async def _from_hub(self, repo: str, revision: str) -> Manifest:
        folder = self.workplace / "source"
        folder.mkdir()
        known = await self.in_thread(lambda stop: self._known())
        said: dict[str, str] = {"commit": "", "endpoint": ""}

        def on_line(line: dict[str, Any]) -> None:
            said.update({key: str(line[key]) for key in said if key in line})
            self._on_line(line)

        request = {
            "repo": repo,
            "revision": revision,
            "target": str(folder),
            "known_commit": self._known_commit(repo, known),
            "endpoint": self.hub.endpoint,
            "token": self.hub.token,
            "by_reference": self.by_reference,
        }
        self.progress.report("download", 0, 0)
        await run_step(Step("download", HUB_COMMAND, needs="leader", request=request), on_line)
        origin = {"fingerprint": self._hub_fingerprint(repo, said["commit"]), "commit": said["commit"]}
        if (existing := await self._existing(origin)) is not None:
            return existing
        if not self.by_reference:
            return await self._from_folder(folder, repo, origin)
        await self._check_kind(is_adapter=False)
        servable, created_s = self.workplace / "servable", int(self.clock.unix_s())
        place = HubOrigin(repo, said["commit"], said["endpoint"])
        manifest = await self.in_thread(
            lambda stop: write_reference(folder, servable, self.model_id, place, origin, created_s)
        )
        return await self._publish(servable, manifest)

    def _hub_fingerprint(self, repo: str, commit: str) -> str:
        """What an import from the hub is: also how it is kept, and for which base."""
        how = " by reference" if self.by_reference else ""
        return f"{repo}@{commit}{how}{f' on {self.base_model_id}' if self.base_model_id else ''}"

    def _known_commit(self, repo: str, known: Manifest | None) -> str | None:
        """The commit the servable there was imported from, when this import would make the same of it."""
        commit = known.extra.get("commit") if known is not None and known.source == repo else None
        is_same = known is not None and known.extra.get("fingerprint") == self._hub_fingerprint(repo, str(commit))
        return str(commit) if commit and is_same else None

    async def _existing(self, origin: dict[str, str]) -> Manifest | None:
        """The servable there when it is of this very source; else None when it may be replaced. Raises Conflict."""
        known = await self.in_thread(lambda stop: self._known())
        if known is not None and known.extra.get("fingerprint") == origin["fingerprint"]:
            return known
        self._check_free()
        return None

    def _known(self) -> Manifest | None:
        """The servable that stands in the target, whole."""
        try:
            return read_servable(self.target, self.model_id).manifest
        except (SwarmError, OSError):
            return None

    async def _check_kind(self, is_adapter: bool) -> None:
        """An import replaces like with like: an adapter named as its base would take the base's weights away.

        Raises Conflict.
        """
        known = await self.in_thread(lambda stop: self._known())
        if known is None or (known.adapter is not None) == is_adapter:
            return
        kinds = ("a whole model", "an adapter")
        raise Conflict(
            f"{self.model_id} is {kinds[not is_adapter]} in the catalog, and this source is {kinds[is_adapter]}; give "
            "the import another model id",
            model_id=self.model_id,
        )

    def _check_free(self) -> None:
        if self.is_loaded(self.model_id):
            raise Conflict(
                f"model {self.model_id} is loaded and this is another source; unload it first, or give the import "
                "another model id",
                model_id=self.model_id,
            )

    def _on_line(self, line: dict[str, Any]) -> None:
        step, done, total = line.get("step"), line.get("done"), line.get("total")
        if isinstance(step, str) and isinstance(done, int) and isinstance(total, int):
            self.progress.report(step, max(done, 0), max(total, 0))


def _kind_of(source: str, roots: ImportRoots, is_local: bool) -> tuple[str, Path]:
    """What the source is: "folder", "gguf" or "hub", and its path.

    A path that exists, and may be named, wins over a hub id of the same letters. Raises BadRequest, and
    PermissionDenied before anything is looked for.
    """
    if not source:
        raise BadRequest("the source is empty; name a folder, a .gguf file or a hub id (org/name)", field="source")
    shown = source[:500]
    is_path = source.startswith((".", "/", "~")) or source.lower().endswith(".gguf")
    try:
        path = Path(source).expanduser()
        try:
            roots.check(path, is_local)
        except PermissionDenied:
            if _HUB_ID.fullmatch(source) and not is_path:
                return "hub", path
            raise
        if path.is_dir():
            return "folder", path
        if path.is_file():
            _check_gguf(path, shown)
            return "gguf", path
    except (OSError, RuntimeError, ValueError) as error:  # not ours to read; a home of nobody
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadRequest(f"{shown} cannot be read on the leader's machine: {why}", field="source") from error
    if _HUB_ID.fullmatch(source) and not is_path:
        return "hub", path
    hub = "" if is_path else ", and it is no hub id (org/name)"
    raise BadRequest(f"no such folder or file: {shown} on the leader's machine{hub}", field="source")


def _check_gguf(path: Path, shown: str) -> None:
    """Look at a file's name and first bytes, before a converter starts. Raises BadRequest, OSError."""
    if path.suffix.lower() != ".gguf":
        raise BadRequest(f"{shown} is a file but not a .gguf; give the checkpoint's folder", field="source")
    with path.open("rb") as file:
        header = file.read(_GGUF_HEADER_BYTES)
    if len(header) < _GGUF_HEADER_BYTES or not header.startswith(GGUF_MAGIC):
        raise BadRequest(f"{shown} is not a GGUF file: it does not begin as one", field="source")
