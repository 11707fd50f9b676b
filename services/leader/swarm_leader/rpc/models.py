"""The Models service: the catalog as clients see it, and imports with their progress."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import grpc
from silentswarm.leader.v1 import models_pb2, models_pb2_grpc
from swarm_core.errors import DeadlinePassed, ServableCorrupt
from swarm_core.manifest import Manifest

from swarm_leader.catalog.import_roots import is_local_call
from swarm_leader.domain.ports import Catalog
from swarm_leader.rpc.model_words import model_to_proto

OnProgress = Callable[[str, int, int], None]
StateOf = Callable[[str], str]  # model id -> where its serving stands; answers at once
IMPORT_S = 24 * 3600.0  # the longest import: a large checkpoint over a slow line


class Imports(Protocol):
    """What this service asks of catalog.importer.Importer."""

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
        """Bring a source into the catalog; cancelling leaves nothing behind."""


class ModelsServicer(models_pb2_grpc.ModelsServicer):
    """Lists what is on disk now: every call looks again, in a thread, because a disk may be slow."""

    def __init__(self, catalog: Catalog, importer: Imports, state_of: StateOf) -> None:
        self._catalog = catalog
        self._importer = importer
        self._state_of = state_of

    async def ListModels(
        self, request: models_pb2.ListModelsRequest, context: grpc.aio.ServicerContext
    ) -> models_pb2.ListModelsResponse:
        await asyncio.to_thread(self._catalog.refresh)
        models = [self._model(manifest) for manifest in self._catalog.manifests().values()]
        models += [_broken(model_id, reason) for model_id, reason in self._catalog.broken().items()]
        models.sort(key=lambda model: model.model_id)
        return models_pb2.ListModelsResponse(models=models)

    async def GetModel(
        self, request: models_pb2.GetModelRequest, context: grpc.aio.ServicerContext
    ) -> models_pb2.Model:
        await asyncio.to_thread(self._catalog.refresh)
        try:
            return self._model(self._catalog.get(request.model_id))
        except ServableCorrupt:
            return _broken(request.model_id, self._catalog.broken().get(request.model_id, "it cannot be read"))

    async def ImportModel(
        self, request: models_pb2.ImportModelRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[models_pb2.ImportModelEvent]:
        progress = _Latest()
        source, model_id, revision = request.source.strip(), request.model_id.strip(), request.revision.strip()
        is_local = is_local_call(context.peer(), context.invocation_metadata())
        bringing = self._importer.import_source(
            source,
            model_id,
            revision,
            progress.put,
            is_local,
            base_model_id=request.base_model_id.strip(),
            by_reference=request.by_reference,
        )
        running = asyncio.create_task(_in_time(bringing))
        running.add_done_callback(lambda _: progress.wake())
        try:
            while not running.done() or progress.is_waiting:
                step = await progress.take()
                if step is not None:
                    yield models_pb2.ImportModelEvent(progress=step)
            manifest = await running
            await asyncio.to_thread(self._catalog.refresh)
            yield models_pb2.ImportModelEvent(model=self._model(manifest))
        except TimeoutError as error:
            raise DeadlinePassed(f"the import of {source} did not end within {IMPORT_S:g} s") from error
        finally:  # the caller went away, or it is over
            running.cancel()
            await asyncio.wait({running})

    def _model(self, manifest: Manifest) -> models_pb2.Model:
        return model_to_proto(manifest, self._catalog.manifests(), self._state_of(manifest.model_id))


async def _in_time(bringing: Awaitable[Manifest]) -> Manifest:
    async with asyncio.timeout(IMPORT_S):
        return await bringing


def _broken(model_id: str, reason: str) -> models_pb2.Model:
    return models_pb2.Model(model_id=model_id, broken=reason, state="broken")


class _Latest:
    """Room for one progress report: a slow client sees fewer, nothing piles up."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._progress: models_pb2.ImportProgress | None = None

    @property
    def is_waiting(self) -> bool:
        """Something was put that nobody took."""
        return self._progress is not None

    def put(self, step: str, done: int, total: int) -> None:
        """Replace what is there."""
        self._progress = models_pb2.ImportProgress(step=step, done=done, total=total)
        self._news.set()

    def wake(self) -> None:
        """Let take() return."""
        self._news.set()

    async def take(self) -> models_pb2.ImportProgress | None:
        """Wait for news; None when woken without any."""
        await self._news.wait()
        self._news.clear()
        progress, self._progress = self._progress, None
        return progress
