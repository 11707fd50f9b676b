"""A whole leader on a real socket over a real SQLite file, for tests. The fellows are in scripted_fellow."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import (
    fleet_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    models_pb2_grpc,
    serving_pb2,
    serving_pb2_grpc,
    status_pb2_grpc,
)
from swarm_core.clock import SystemClock
from swarm_core.manifest import FileEntry, Manifest, manifest_to_json
from swarm_leader.assembly.leader import Leader
from swarm_leader.assembly.relaying import make_leader_server
from swarm_leader.assembly.services import LEADER_SERVICES, add_services
from swarm_leader.config import LeaderConfig
from swarm_leader.store import open_store
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.server import add_health_and_reflection, announce, listen

from tests.unit.leader.model_facts import make_manifest

MODEL = "tiny"
WAIT_S = 10.0
LOOK_S = 0.2  # for covers, of which only some fellows know
# Short enough for a test, long enough for two busy cores.
QUICK: dict[str, Any] = {
    "heartbeat_s": 0.2,
    "lease_s": 1.5,
    "recover_s": 2.0,
    "heal_wait_s": 1.0,
    "load_timeout_s": 20.0,
    "wire_timeout_s": 3.0,
    "probe_timeout_s": 3.0,
    "unload_timeout_s": 2.0,
    "min_free_disk_gb": 0.0,
    "context_tokens": 256,
}


@dataclasses.dataclass
class Rig:
    """A leader that runs, and its stubs."""

    leader: Leader
    server: grpc.aio.Server
    address: str
    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.serving = serving_pb2_grpc.ServingStub(self.channel)
        self.fleet = fleet_pb2_grpc.FleetStub(self.channel)
        self.models = models_pb2_grpc.ModelsStub(self.channel)
        self.status = status_pb2_grpc.StatusStub(self.channel)
        self.inference = inference_pb2_grpc.InferenceStub(self.channel)

    async def kill(self) -> None:
        """End the leader as if killed: nothing more is written or said. Harmless when it is dead."""
        await self.channel.close()
        await self.leader.tasks.close()
        await self.server.stop(None)
        await self.leader.store.close()

    async def load(self, **request: Any) -> serving_pb2.ModelStatus:
        """Ask for a load; answered at once."""
        return await self.serving.LoadModel(serving_pb2.LoadModelRequest(**{"model_id": MODEL, **request}))

    async def watch(self) -> list[serving_pb2.ModelStatus]:
        """Every status until the model settles."""
        call = self.serving.WatchModel(serving_pb2.WatchModelRequest(model_id=MODEL), timeout=WAIT_S)
        return [status async for status in call]

    async def load_ready(self, **request: Any) -> serving_pb2.ModelStatus:
        """Load and wait until it settles."""
        await self.load(**request)
        return (await self.watch())[-1]

    async def get(self) -> serving_pb2.ModelStatus:
        """Where the model stands."""
        return await self.serving.GetModelStatus(serving_pb2.GetModelStatusRequest(model_id=MODEL))

    async def until_state(self, state: str) -> serving_pb2.ModelStatus:
        """Wait for a state, by the end of its name ("READY")."""
        wanted = serving_pb2.PlacementState.Value(f"PLACEMENT_STATE_{state}")
        status = await self.get()
        until_s = time.monotonic() + WAIT_S
        while status.state != wanted:
            assert time.monotonic() < until_s, f"state is {status.state} ({status.reason}), not {state}"
            await asyncio.sleep(0.02)
            status = await self.get()
        return status

    def generate(self, request_id: str = "", **generation: Any) -> Any:
        """Ask for a reply; the call streams its events."""
        wanted = generation_pb2.Generation(**{"prompt": "Hello", **generation})
        return self.inference.Generate(
            inference_pb2.GenerateRequest(model_id=MODEL, generation=wanted, request_id=request_id), timeout=WAIT_S
        )


@asynccontextmanager
async def running_leader(data_dir: Path, **changes: Any) -> AsyncIterator[Rig]:
    """A leader that serves until the block is left; then it is killed."""
    config = LeaderConfig(**{**QUICK, "data_dir": data_dir, "grpc_port": 0, **changes})
    write_servable(config.models_root, make_manifest(context_tokens_max=512))
    clock = SystemClock()
    store = await open_store(config.store_url, clock)
    leader = Leader(config, store, clock)
    server = make_leader_server(config, leader.access.authorize)
    add_services(leader, server)
    healthy = add_health_and_reflection(server, LEADER_SERVICES)
    port = listen(server, "127.0.0.1:0")
    await leader.start()
    await server.start()
    leader.covering.look_s = LOOK_S
    leader.serve()
    await announce(healthy, LEADER_SERVICES, serving=True)
    rig = Rig(leader, server, f"127.0.0.1:{port}", dial(f"127.0.0.1:{port}"))
    try:
        yield rig
    finally:
        await rig.kill()


def write_servable(root: Path, manifest: Manifest, model_id: str = MODEL) -> None:
    """A servable with the sizes its manifest says; its weights are holes in a file."""
    folder = root / model_id.replace("/", "---")
    (folder / "base").mkdir(parents=True, exist_ok=True)
    names = ["config.json", *(["adapter_config.json"] if manifest.adapter else [])]
    for name in names:
        (folder / name).write_text("{}")
    with (folder / "base" / "model.safetensors").open("wb") as weights:
        weights.truncate(max(entry.size_bytes for entry in manifest.tensors.values()))
    entries = {name: FileEntry(2, "0" * 64) for name in names}
    written = dataclasses.replace(manifest, model_id=model_id, files=entries)
    (folder / "servable.json").write_bytes(manifest_to_json(written))


async def until(claim: Callable[[], bool], what: str) -> None:
    """Wait until something holds; fails with `what` when it does not come to hold."""
    until_s = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < until_s, f"never: {what}"
        await asyncio.sleep(0.02)


async def refusal_of(call: Any) -> Any:
    """The error a call ends with, as the client sees it. Fails when it does not."""
    try:
        if hasattr(call, "__aiter__"):
            _ = [event async for event in call]
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error_of(error)
    raise AssertionError("the call was not refused")


def text_of(events: list[Any]) -> str:
    """The text of a reply."""
    return "".join(answer.event.tokens.text for answer in events)
