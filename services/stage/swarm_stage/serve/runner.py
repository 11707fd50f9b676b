"""What a stage process does, in order: load once, join rings, prove them, reply, stop. The servicer translates."""

import asyncio
import os
import resource
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING

import grpc
import structlog
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.ring.v1 import ring_pb2_grpc
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.clock import Clock, SystemClock
from swarm_core.errors import Conflict, LinkBroken, StageFailed, SwarmError
from swarm_core.listen import join_host_port
from swarm_core.manifest import DTYPE_BYTES
from swarm_rpc.limits import FRAME_BYTES_MAX
from swarm_rpc.server import ConnectionLimits, listen, make_server

from swarm_stage.engine.admission import Admission
from swarm_stage.engine.budget import KvBudget
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.engine import EngineThread, Halt, Role
from swarm_stage.engine.first_stage import FirstStage
from swarm_stage.engine.later_stage import LaterStage
from swarm_stage.engine.steps import Compute
from swarm_stage.ring.certificates import open_certificates
from swarm_stage.ring.direct import MESSAGE_BYTES_MAX, RingServicer
from swarm_stage.ring.link import RingPlace
from swarm_stage.ring.wiring import WireOrder, Wiring
from swarm_stage.serve.importing import import_slice_code
from swarm_stage.serve.lap import check_lap
from swarm_stage.serve.replies import Replies

if TYPE_CHECKING:  # torch is imported after the socket answers
    from swarm_stage.serve.build import BuiltSlice

log = structlog.get_logger()
ROUTE_NAMES = {
    stage_pb2.ROUTE_DIRECT: "direct",
    stage_pb2.ROUTE_RELAY: "relay",
    stage_pb2.ROUTE_LOCAL: "local",
    stage_pb2.ROUTE_UNSPECIFIED: "",
}
LINKS_MAX = 8  # calls of one connection on the ring's port; one is the link, others are tries and strangers
# One neighbour dials the ring's port, again at most every 50 ms while the ring is wired. Whoever else connects can keep
# this many places for these few seconds, and no more than that.
RING_LIMITS = ConnectionLimits(connections_max=128, idle_s=10, handshake_s=3)
KV_UNLIMITED = 2**31  # a model that does not say how far it goes
OnProgress = Callable[[str, int, int], None]
Build = Callable[[stage_rpc.LoadRequest, OnProgress], "tuple[Compute, BuiltSlice]"]


class StageRunner:
    """The one stage of this process."""

    def __init__(self, clock: Clock | None = None, build: Build | None = None) -> None:
        """build: makes what computes, on the engine thread; None is the real slice. Benchmarks hand in another."""
        self._clock = clock or SystemClock()
        self._build_compute = build or _build_torch
        self._loop = asyncio.get_running_loop()
        self._counters = Counters(last_busy_s=self._clock.monotonic_s())
        self._spec: stage_pb2.StageSpec | None = None
        self._engine: EngineThread | None = None
        self._wiring: Wiring | None = None
        self._replies: Replies | None = None
        self._ring_server: grpc.aio.Server | None = None
        self._layer_count = 0
        self._vocabulary_size = 0
        self._kv_tokens_measured: int | None = None
        self._budget = KvBudget(0, 0)
        self._loaded_s: float | None = None  # when, on the clock
        self._wired_s: float | None = None  # when it last joined a ring, on the clock
        self._fault_queues: set[asyncio.Queue[stage_rpc.Fault]] = set()
        self.stopping = asyncio.Event()

    async def load(self, request: stage_rpc.LoadRequest, on_progress: OnProgress) -> stage_rpc.Loaded:
        """Build the slice and listen for the previous stage. Raises Conflict on a second load."""
        if self._spec is not None:
            raise Conflict("this process has loaded its stage already")
        spec = self._spec = request.spec
        place = RingPlace(spec.placement_id, spec.stage_index, spec.stage_count)
        loaded = stage_rpc.Loaded()
        engine = EngineThread(
            self._loop, lambda: self._build(request, on_progress, loaded), self._engine_fault, _end_process
        )
        self._engine = engine
        certificates = await asyncio.to_thread(open_certificates, request.tls_dir)
        self._wiring = Wiring(place, engine.inbox, self._link_fault, self._clock, certificates)
        engine.start()
        await engine.built
        self._loaded_s = self._clock.monotonic_s()
        if spec.stage_index == 0:
            codec = await asyncio.to_thread(_load_codec, request.model_dir)
            self._replies = Replies(engine.inbox, codec, self._vocabulary_size, self._budget, self._clock)
            await self._replies.check_template()
        if request.ring_bind_host and spec.stage_count > 1:
            self._ring_server = make_server(MESSAGE_BYTES_MAX, streams_max=LINKS_MAX, limits=RING_LIMITS)
            ring_pb2_grpc.add_RingServicer_to_server(RingServicer(place, self._wiring), self._ring_server)
            loaded.ring_port = listen(
                self._ring_server,
                join_host_port(request.ring_bind_host, 0),
                certificates.credentials() if certificates else None,
            )
            await self._ring_server.start()
        return loaded

    async def wire(self, order: WireOrder) -> stage_rpc.WireResponse:
        """Join a ring epoch. A link that could not be made is an answer; StaleEpoch is raised."""
        wiring = self._loaded_wiring()
        try:
            address = await wiring.join(order)
        except LinkBroken as error:
            return stage_rpc.WireResponse(connected=False, failure=error.message)
        self._wired_s = self._clock.monotonic_s()
        return stage_rpc.WireResponse(connected=True, address=address)

    async def probe(self, timeout_s: float) -> stage_rpc.ProbeResponse:
        """One lap, checked. Raises StageFailed when what came back is not this ring's."""
        spec, replies = self._stage_0()
        started_s = self._clock.monotonic_s()
        lap = await replies.lap(timeout_s)
        lap_ms = (self._clock.monotonic_s() - started_s) * 1e3
        wrong = check_lap(
            lap, spec.layer_start, spec.layer_stop, self._layer_count, spec.stage_count, self._vocabulary_size
        )
        if wrong:
            raise StageFailed(f"the ring is wired wrong: {wrong}")
        return stage_rpc.ProbeResponse(lap_ms=lap_ms, stage_ms=[trace.compute_us / 1e3 for trace in lap.traces])

    def generate(
        self, request_id: str, generation: generation_pb2.Generation
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """Events of one reply."""
        return self._stage_0()[1].generate(request_id, generation)

    def status(self) -> stage_pb2.StageStatus:
        """Live figures; never waits for the engine."""
        counters = self._counters
        status = stage_pb2.StageStatus(
            route=self._wiring.route if self._wiring else stage_pb2.ROUTE_UNSPECIFIED,
            sessions=counters.sessions,
            kv_tokens_used=counters.kv_tokens_used,
            kv_tokens_reserved=counters.kv_tokens_reserved,
            requests=counters.requests,
            positions=counters.positions,
            idle_s=self._idle_s(),
            memory_bytes=_resident_bytes(),
            frames_refused=counters.frames_refused,
            links_refused=self._wiring.links_refused if self._wiring else 0,
            tokens_per_s=counters.tokens_per_s,
            first_token_s=counters.first_token_s,
            kv_tokens_measured=self._kv_tokens_measured,
            kv_tokens_max=counters.kv_tokens_max,
            waiting=counters.waiting,
            too_long=counters.too_long,
            busy_s=counters.busy_s,
            loaded_s=self._clock.monotonic_s() - self._loaded_s if self._loaded_s is not None else 0.0,
            generated_tokens=counters.generated_tokens,
            prompt_tokens=counters.prompt_tokens,
            failed=counters.failed,
            sessions_kept=counters.sessions_kept,
            tape_bytes=counters.tape_bytes,
            resumed_kept=counters.resumed_kept,
            resumed_anew=counters.resumed_anew,
            positions_rebuilt=counters.positions_rebuilt,
            link_round_trip_ms=self._wiring.link_round_trip_ms if self._wiring else None,
        )
        if self._spec is not None:
            status.spec.CopyFrom(self._spec)
            status.spec.epoch = self._wiring.epoch if self._wiring and self._wiring.epoch else self._spec.epoch
        return status

    def _idle_s(self) -> float:
        """Seconds since it last had something to do. Before its ring stands it is not idle: the others still load."""
        if self._counters.sessions or self._wired_s is None:
            return 0.0
        return self._clock.monotonic_s() - max(self._counters.last_busy_s, self._wired_s)

    async def faults(self) -> AsyncIterator[stage_rpc.Fault]:
        """Faults from now on."""
        queue: asyncio.Queue[stage_rpc.Fault] = asyncio.Queue(64)
        self._fault_queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._fault_queues.discard(queue)

    async def close(self) -> None:
        """Leave the ring and end the engine; the process may exit then."""
        if self._wiring is not None:
            await self._wiring.close()
        if self._ring_server is not None:
            await self._ring_server.stop(grace=0.2)
        if self._engine is not None:
            self._engine.inbox.put_now(Halt())

    def _build(self, request: stage_rpc.LoadRequest, on_progress: OnProgress, loaded: stage_rpc.Loaded) -> Role:
        """Runs on the engine thread."""
        spec = request.spec
        compute, built = self._build_compute(request, on_progress)
        self._layer_count, self._vocabulary_size = built.layers.layer_count, built.model.vocabulary_size
        self._kv_tokens_measured = built.kv_tokens_measured
        loaded.weight_bytes = built.model.weight_bytes
        loaded.kv_bytes_per_token = built.model.kv_bytes_per_token
        loaded.quantization = built.model.quantization
        loaded.notes.extend(built.model.notes)
        loaded.kv_tokens_measured = built.kv_tokens_measured
        if request.device_layers:
            loaded.device_weight_bytes.extend(built.model.run_weight_bytes)
        loaded.memory_peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert self._wiring is not None
        if spec.stage_index > 0:
            return LaterStage(
                compute,
                spec,
                built.model.hidden_size,
                self._counters,
                self._clock,
                self._wiring.send_from_engine,
                request.tape_bytes_max,
            )
        kv_tokens = min(spec.kv_tokens or built.kv_tokens_measured, built.kv_tokens_measured)
        self._budget = KvBudget(kv_tokens, min(spec.context_tokens, built.model.context_tokens_max or KV_UNLIMITED))
        return FirstStage(
            compute,
            Admission(self._budget, spec.in_flight_max),
            self._counters,
            self._clock,
            self._wiring.send_from_engine,
            self._route_name,
            spec.stage_count,
            _piece_tokens(request.prefill_chunk_tokens, built.model.hidden_size, spec.dtype),
            spec.batch_max,
            request.tape_bytes_max,
        )

    def _route_name(self) -> str:
        return ROUTE_NAMES[self._wiring.route] if self._wiring else ""

    def _loaded_wiring(self) -> Wiring:
        if self._wiring is None or self._engine is None or not self._engine.built.done():
            raise Conflict("this process has not loaded its stage yet")
        return self._wiring

    def _stage_0(self) -> tuple[stage_pb2.StageSpec, Replies]:
        if self._replies is None or self._spec is None:
            raise Conflict("only a loaded stage 0 takes requests")
        return self._spec, self._replies

    def _link_fault(self, epoch: int, why: str, peer_stage: int | None) -> None:
        self._tell(stage_rpc.Fault(kind="link", epoch=epoch, message=why, peer_stage=peer_stage))

    def _engine_fault(self, error: SwarmError) -> None:
        epoch = self._wiring.epoch if self._wiring else 0
        fault = stage_rpc.Fault(kind="engine", epoch=epoch, message=error.message)
        self._loop.call_soon_threadsafe(self._tell, fault)

    def _tell(self, fault: stage_rpc.Fault) -> None:
        for queue in self._fault_queues:
            if not queue.full():
                queue.put_nowait(fault)


def _build_torch(request: stage_rpc.LoadRequest, on_progress: OnProgress) -> "tuple[Compute, BuiltSlice]":
    """The real slice. The first import of torch happens here, unless this process was a spare."""
    on_progress("import", 0, 1)
    import_slice_code()
    from swarm_stage.serve.build import build
    from swarm_stage.serve.torch_compute import TorchCompute

    on_progress("import", 1, 1)
    built = build(request, on_progress)
    spec = request.spec
    codecs = spec.codec_in, spec.codec_out
    return TorchCompute(built.model, built.layers, spec.dtype, str(built.model.device), *codecs), built


def _piece_tokens(asked: int, hidden_size: int, dtype: str) -> int:
    """Prompt tokens per piece: as asked (0 is the whole prompt), but never more than one frame can carry."""
    longest = FRAME_BYTES_MAX // (hidden_size * DTYPE_BYTES[dtype])
    return min(asked, longest) if asked else longest


def _end_process() -> None:
    """Nothing computes any more: a crash says more than a stage that answers and does nothing."""
    os._exit(70)


def _load_codec(model_dir: str):
    """The tokenizer, loaded off the loop: importing it takes a second."""
    from swarm_stage.text.codec import load_text_codec

    return load_text_codec(model_dir)


def _resident_bytes() -> int:
    """This process's resident set, in bytes."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - read on every heartbeat; pathlib would only add to it
        return int(statm.read().split()[1]) * resource.getpagesize()
