"""An import by path, asked over gRPC: by this machine, by others, and by what speaks for others."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from silentswarm.leader.v1 import models_pb2, models_pb2_grpc
from swarm_core.errors import Reason, SwarmError
from swarm_gateway.leader import Leader, present
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.import_roots import read_import_roots
from swarm_leader.catalog.importer import Hub, Importer
from swarm_leader.rpc.models import ModelsServicer
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.forwarded import FORWARDED
from swarm_rpc.server import listen, make_server

from tests.integration.catalog.checkpoints import write_checkpoint

Ask = Callable[..., object]
OTHERS = ((FORWARDED, "1"),)
NO_HUB = Hub("http://127.0.0.1:9")


@pytest.fixture
async def ask(root: Path, tmp_path: Path):
    """Asks a leader of these import roots for one import; returns the model's id, or why it was refused."""
    servers: list[grpc.aio.Server] = []

    async def asked(
        source: str, metadata: tuple[tuple[str, str], ...] = (), roots: str = ""
    ) -> str | tuple[Reason, str]:
        importer = Importer(root, hub=NO_HUB, roots=read_import_roots(roots))
        server = make_server()
        servicer = ModelsServicer(DiskCatalog(root), importer, lambda model_id: "idle")
        models_pb2_grpc.add_ModelsServicer_to_server(servicer, server)
        port = listen(server, "127.0.0.1:0")
        await server.start()
        servers.append(server)
        request = models_pb2.ImportModelRequest(source=source, model_id="m")
        async with dial(f"127.0.0.1:{port}") as channel:
            call = models_pb2_grpc.ModelsStub(channel).ImportModel(request, timeout=60, metadata=metadata)
            try:
                return [event async for event in call][-1].model.model_id
            except grpc.aio.AioRpcError as error:
                return error_of(error).why, error_of(error).message

    yield asked
    for server in servers:
        await server.stop(None)


async def test_the_machine_itself_imports_from_anywhere(ask: Ask, tmp_path: Path):
    assert await ask(str(write_checkpoint(tmp_path / "source"))) == "m"


async def test_who_is_spoken_for_imports_no_path_and_learns_nothing_of_the_disk(ask: Ask, tmp_path: Path):
    there = write_checkpoint(tmp_path / "source")
    answers = [await ask(str(path), OTHERS) for path in (there, tmp_path / "nothing", "/etc/passwd", "~/x", "x.gguf")]

    assert {reason for reason, _ in answers} == {Reason.PERMISSION_DENIED}
    assert len({words for _, words in answers}) == 1


async def test_who_is_spoken_for_imports_from_the_hub(ask: Ask):
    reason, words = await ask("org/tiny", OTHERS)

    assert reason is Reason.UNAVAILABLE and "the hub at 127.0.0.1:9 cannot be reached" in words


async def test_below_the_roots_everyone_imports(ask: Ask, tmp_path: Path):
    source = write_checkpoint(tmp_path / "roots/source")

    assert await ask(str(source), OTHERS, str(tmp_path / "roots")) == "m"


@pytest.mark.parametrize("metadata", [(), OTHERS])
async def test_beside_the_roots_nobody_does(ask: Ask, tmp_path: Path, metadata):
    (tmp_path / "roots").mkdir()
    source = write_checkpoint(tmp_path / "source")
    (tmp_path / "roots/link").symlink_to(source)

    for path in (source, tmp_path / "roots/link", tmp_path / "roots/../source"):
        reason, words = await ask(str(path), metadata, str(tmp_path / "roots"))
        assert reason is Reason.PERMISSION_DENIED and "SWARM_IMPORT_ROOTS" in words


async def test_the_gateway_says_that_it_speaks_for_others(root: Path, tmp_path: Path):
    """It connects from the leader's own machine, with an administrator's token at best."""
    server = make_server()
    servicer = ModelsServicer(DiskCatalog(root), Importer(root, hub=NO_HUB), lambda model_id: "idle")
    models_pb2_grpc.add_ModelsServicer_to_server(servicer, server)
    port = listen(server, "127.0.0.1:0")
    await server.start()
    method = models_pb2.DESCRIPTOR.services_by_name["Models"].methods_by_name["ImportModel"]
    request = models_pb2.ImportModelRequest(source=str(write_checkpoint(tmp_path / "source")))
    async with dial(f"127.0.0.1:{port}") as channel:
        for token in ("", "sk-swarm-admin"):
            present(token)
            async with Leader(channel, "the leader").stream(method, request, 30) as events:
                with pytest.raises(SwarmError) as refused:
                    await events.read()
            assert refused.value.why is Reason.PERMISSION_DENIED
    present("")
    await server.stop(None)
