"""Serves stage.v1.Stage on a Unix socket like the real stage, computing nothing. Prompts and STAND_IN say what happens.

STAND_IN, comma separated: "dies-at-start", "dies-in-load", "hangs-in-load", "ignores-stop", "tells-figures" (a number
in every figure of its status), "tells-request" (what its load asked for, in its output, and figures of what it holds).
What it was told at its load is one line of its output.
SIGUSR2 keeps its event loop from running: with "busy-S" it computes for S seconds, without it sleeps for a minute.
Prompts: "count N", "pages N" (10 kB each), "forever", "die", "too-long", "break-link", "break-engine". SIGUSR1 breaks
the link.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from google.protobuf import json_format
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc_pb2
from silentswarm.stage.v1.stage_pb2_grpc import StageServicer, add_StageServicer_to_server
from swarm_core.errors import ContextTooLong, StaleEpoch
from swarm_rpc.server import listen, make_server

HABITS = set(os.environ.get("STAND_IN", "").split(","))
Event = generation_pb2.GenerationEvent


class StandIn(StageServicer):
    """One stage that pretends."""

    def __init__(self) -> None:
        self.status = stage_pb2.StageStatus()
        self.idle_since_s = time.monotonic()
        self.faults: asyncio.Queue[rpc_pb2.Fault] = asyncio.Queue(16)
        self.stopped = asyncio.Event()

    async def Load(self, request, context):
        yield rpc_pb2.LoadEvent(progress=rpc_pb2.LoadProgress(step="build", done=1, total=2))
        if "dies-in-load" in HABITS:
            print("cannot allocate memory for layer 3", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if "hangs-in-load" in HABITS:
            await asyncio.sleep(600)
        spec = request.spec
        print(f"told: {request.attention}, {spec.batch_max}, {int(spec.measure_step_costs)}", flush=True)
        if "tells-request" in HABITS:
            print(json_format.MessageToJson(request, indent=None), flush=True)
        self.status.spec.CopyFrom(request.spec)
        self.idle_since_s = time.monotonic()
        yield rpc_pb2.LoadEvent(
            loaded=rpc_pb2.Loaded(
                ring_port=4242 if request.ring_bind_host else 0,
                weight_bytes=sum(read_tensor_bytes(Path(path)) for path in request.tensor_files.values()),
                kv_tokens_measured=len(json.loads((Path(request.model_dir) / "config.json").read_text())),
                quantization="nf4" if "tells-request" in HABITS else "",
                notes=["as asked"] if "tells-request" in HABITS else [],
                device_weight_bytes=[10, 20] if "tells-request" in HABITS else [],
            )
        )

    async def Wire(self, request, context):
        if request.epoch < self.status.spec.epoch:
            raise StaleEpoch(f"epoch {request.epoch} is over")
        self.status.spec.epoch = request.epoch
        tokens = request.kv_tokens if request.HasField("kv_tokens") else "unnamed"
        told = f"relay {request.relay_address} in {request.timeout_ms}, kv tokens {tokens}"
        return rpc_pb2.WireResponse(connected=False, failure=told)

    async def Probe(self, request, context):
        return rpc_pb2.ProbeResponse(lap_ms=2.5, stage_ms=[1.0, 1.0])

    async def Generate(self, request, context):
        words = request.generation.prompt.split()
        if words[0] == "too-long":
            raise ContextTooLong("too long", needed_tokens=9000, budget_tokens=4096)
        self.status.sessions += 1
        self.status.requests += 1
        try:
            yield Event(sequence=1, started=Event.Started(prompt_tokens=len(words)))
            count = int(words[1]) if words[0] in ("count", "pages") else 10**6 if words[0] == "forever" else 1
            for number in range(count):
                self.status.positions += 1
                text = f"{number} " * (2_000 if words[0] == "pages" else 1)
                yield Event(sequence=2 + number, tokens=Event.TokenBatch(text=text, ids=[number]))
                if words[0] == "forever":
                    await asyncio.sleep(0.02)
            await self._break(words[0])
            yield Event(sequence=2 + count, done=Event.Done(completion_tokens=count))
        finally:
            self.status.sessions -= 1
            self.idle_since_s = time.monotonic()

    async def _break(self, what: str) -> None:
        if what == "die":
            print("segmentation fault ahead", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if what in ("break-link", "break-engine"):
            kind = what.removeprefix("break-")
            self.tell_fault(kind)
            await asyncio.sleep(0 if kind == "link" else 600)

    def stand_still(self) -> None:
        busy_s = [float(habit.removeprefix("busy-")) for habit in HABITS if habit.startswith("busy-")]
        until_s = time.monotonic() + sum(busy_s)
        while time.monotonic() < until_s:
            pass
        time.sleep(0 if busy_s else 60)

    def tell_fault(self, kind: str) -> None:
        self.faults.put_nowait(rpc_pb2.Fault(kind=kind, epoch=self.status.spec.epoch, message=f"{kind} broke"))

    async def GetStatus(self, request, context):
        status = stage_pb2.StageStatus()
        status.CopyFrom(self.status)
        status.idle_s = 0 if status.sessions else time.monotonic() - self.idle_since_s
        if "tells-figures" in HABITS:
            for number, name in enumerate(figure_names(), start=1):
                setattr(status, name, number)
        return status

    async def WatchFaults(self, request, context):
        while True:
            yield await self.faults.get()

    async def Stop(self, request, context):
        if "ignores-stop" not in HABITS:
            self.stopped.set()
        return rpc_pb2.StopResponse()


def figure_names() -> list[str]:
    """Every figure of a status that is a number, in the contract's order."""
    fields = stage_pb2.StageStatus.DESCRIPTOR.fields
    return [field.name for field in fields if field.message_type is None and field.enum_type is None]


def read_tensor_bytes(path: Path) -> int:
    """Bytes of the one tensor in a safetensors file, after checking that the file is whole."""
    with path.open("rb") as stream:
        head = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data_bytes = len(stream.read())
    assert set(head) == {"tensor"} and head["tensor"]["data_offsets"] == [0, data_bytes], head
    return data_bytes


def exit_with_parent() -> None:
    """The real stage ends when its stdin does; so does this one."""
    sys.stdin.buffer.read()
    os._exit(0)


async def main() -> None:
    if "dies-at-start" in HABITS:
        print("no module named torch", flush=True)
        os._exit(1)
    if "ignores-stop" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stand_in = StandIn()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stand_in.tell_fault, "link")
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, stand_in.stand_still)
    server = make_server()
    add_StageServicer_to_server(stand_in, server)
    listen(server, f"unix:{sys.argv[sys.argv.index('--socket') + 1]}")
    await server.start()
    await stand_in.stopped.wait()
    await server.stop(0.1)
    os._exit(0)  # the thread that reads stdin would hold the interpreter's own end up


if __name__ == "__main__":
    threading.Thread(target=exit_with_parent, daemon=True).start()
    asyncio.run(main())
