"""The other end of the leader's links: speaks the real protocol over a real socket, and does what a test tells it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from silentswarm.core.v1 import capabilities_pb2, generation_pb2, hardware_pb2, reason_pb2, stage_pb2
from silentswarm.fellow.v1 import (
    fellow_link_pb2,
    fellow_link_pb2_grpc,
    inference_link_pb2,
    inference_link_pb2_grpc,
)
from swarm_rpc.channel import dial

HEARTBEAT_S = 0.2


def declare(**changes: Any) -> capabilities_pb2.Capabilities:
    """Everything a ring asks for; None leaves a capability out."""
    able = {
        "wire": capabilities_pb2.Wire(version_min=1, version_max=1, dtypes=["F32", "BF16", "F16"]),
        "ping": capabilities_pb2.Ping(),
        "serve": capabilities_pb2.Serve(loaded_models_max=1, model_types=["llama"]),
        "serve_one_stage": capabilities_pb2.ServeOneStage(),
        "serve_n_stage": capabilities_pb2.ServeNStage(stage_count_max=8),
        "serve_concurrent": capabilities_pb2.ServeConcurrent(in_flight_max=16),
        "direct_link": capabilities_pb2.DirectLink(),
        "serve_rewire": capabilities_pb2.ServeRewire(),
        "serve_kv_budget": capabilities_pb2.ServeKvBudget(),
        "serve_sampling": capabilities_pb2.ServeSampling(),
    }
    return capabilities_pb2.Capabilities(**{**able, **changes})


class ScriptedFellow:
    """One fellow. What it was told is in `signals`, `requests` and `cancels`; what it does is in its switches."""

    def __init__(self, name: str, free_bytes: int = 4 * 10**9, capabilities: Any = None, join_token: str = "") -> None:
        self.name = name
        self.identity = f"identity of {name}"
        self.capabilities = capabilities or declare()
        self.join_token = join_token
        self.free_bytes = free_bytes
        self.total_bytes: int | None = None
        self.compute_capability = ""  # of a card; "" is a processor
        self.cards_free_bytes: list[int] = []  # of its cards, beside which it has a processor; none: one device
        self.registered: fellow_link_pb2.Registered | None = None
        self.credential = ""  # presented once it has one
        self.process_nonce = ""
        self.error: grpc.aio.AioRpcError | None = None
        self.signals: list[fellow_link_pb2.Signal] = []
        self.requests: list[inference_link_pb2.ReplyRequest] = []
        self.cancels: list[str] = []
        self.resumes: list[inference_link_pb2.ResumeReply] = []
        self.held: dict[str, fellow_link_pb2.HeldStage] = {}
        # Switches.
        self.load_failure = ""
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.may_unload = asyncio.Event()
        self.may_unload.set()
        self.reaches_directly = True
        self.reaches_relay = True
        self.connects_to: set[str] = set()  # addresses that take a connection, asked by CHECK
        self.ring_host = "10.0.0.1"
        self.probe_failure = ""
        self.answers_check: bool | None = True  # None: not at all
        self.probe_failures = 0  # how many laps fail before one goes round
        self.kv_tokens_measured = 10**6
        self.stage_bytes: int | None = None  # what a stage says it holds
        self.loads_as: dict[str, Any] = {}  # what else it says of a stage it loaded
        self.replies_with: list[str] | None = ["Hi", " there"]  # None: only what `say` says
        self.beats = True
        self._covers: dict[str, fellow_link_pb2.HeldStage] = {}
        self._sequences = itertools.count(1)
        self._links: list[asyncio.Task[None]] = []
        self._channel: grpc.aio.Channel | None = None
        self._up: asyncio.Queue[Any] = asyncio.Queue()
        self._events: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def serve_ended(self) -> bool:
        """Whether its inference link is over."""
        return len(self._links) > 2 and self._links[2].done()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        return (("authorization", f"Bearer {self.credential}"),) if self.credential else ()

    @property
    def is_connected(self) -> bool:
        """Whether its Connect is open."""
        return bool(self._links) and not self._links[0].done()

    def kinds(self) -> list[str]:
        """The signals it was sent, by kind."""
        return [str(signal.WhichOneof("kind")) for signal in self.signals]

    def wires(self) -> list[fellow_link_pb2.WireSignal]:
        """The WIREs it was sent."""
        return [signal.wire for signal in self.signals if signal.WhichOneof("kind") == "wire"]

    async def join(self, address: str) -> "ScriptedFellow":
        """Dial, register with what it holds, open the inference link. Raises the refusal."""
        await self.connect_only(address)
        assert self.registered is not None
        for spec in self.registered.unwanted:
            self.held.pop(spec.placement_id, None)
        self.open_inference_link()
        return self

    async def connect_only(self, address: str) -> None:
        """Dial and register, and go no further. Raises the refusal."""
        self._channel = dial(address)
        self._up, self._events = asyncio.Queue(), asyncio.Queue()
        registered = asyncio.get_running_loop().create_future()
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(register=self._register()))
        self._links = [asyncio.create_task(self._connect(registered)), asyncio.create_task(self._beat())]
        async with asyncio.timeout(10):
            self.registered = await registered
        self.credential = self.registered.node_credential or self.credential

    def open_inference_link(self, *kept: inference_link_pb2.KeptReply) -> None:
        """Open it, after joining or after it was dropped. kept: replies that went on meanwhile."""
        assert self.registered is not None
        self._events = asyncio.Queue()
        hello = inference_link_pb2.InferenceHello(
            fellow_id=self.registered.fellow_id, process_nonce=self.process_nonce, kept=kept
        )
        self._events.put_nowait(inference_link_pb2.ServeRequest(hello=hello))
        self._links[2:] = [asyncio.create_task(self._serve())]

    async def leave(self) -> None:
        """Drop every link at once, as a dead machine does."""
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    async def drop_inference_link(self) -> None:
        """Only the inference link breaks."""
        self._links[2].cancel()
        await asyncio.gather(self._links[2], return_exceptions=True)

    def switches_in(self, placement_id: str, stage_index: int) -> None:
        """Hold a stage outside its ring, which the next WIRE makes one of it."""
        spec = stage_pb2.StageSpec(placement_id=placement_id, stage_index=stage_index)
        self._covers[placement_id] = fellow_link_pb2.HeldStage(status=stage_pb2.StageStatus(spec=spec))

    def report(self, kind: int, message: str, placement_id: str = "", peer_stage: int | None = None) -> None:
        """A stage's life changes without a signal; but for a broken link it is held no more."""
        placement_id = placement_id or next(iter(self.held))
        spec = self.held[placement_id].status.spec
        if kind != fellow_link_pb2.STAGE_EVENT_KIND_LINK_BROKEN:
            del self.held[placement_id]
        event = fellow_link_pb2.StageEvent(spec=spec, kind=kind, message=message, peer_stage=peer_stage)
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(stage_event=event))

    def say(self, request_id: str, sequence: int, **event: Any) -> None:
        """Send one event of a reply."""
        sent = generation_pb2.GenerationEvent(sequence=sequence, **event)
        reply = inference_link_pb2.ReplyEvent(request_id=request_id, event=sent)
        self._events.put_nowait(inference_link_pb2.ServeRequest(event=reply))

    def beat(self) -> None:
        """Send a heartbeat now."""
        stages = [held.status for held in self.held.values()]
        beat = fellow_link_pb2.Heartbeat(sequence=next(self._sequences), devices=self._devices(), stages=stages)
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(heartbeat=beat))

    def _register(self) -> fellow_link_pb2.Register:
        return fellow_link_pb2.Register(
            identity=self.identity,
            name=self.name,
            join_token=self.join_token,
            hardware=hardware_pb2.Hardware(hostname=self.name, devices=self._devices()),
            capabilities=self.capabilities,
            held=self.held.values(),
            version="0.1.0",
            process_nonce=self.process_nonce,
        )

    def _devices(self) -> list[hardware_pb2.Device]:
        cards = [
            hardware_pb2.Device(
                device_index=index,
                kind="cuda",
                memory_free_bytes=free,
                compute_dtype="F16",
                compute_capability="8.6",
                read_bytes_per_s=100e9,
            )
            for index, free in enumerate(self.cards_free_bytes, start=1)
        ]
        return [self._device(), *cards]

    def _device(self) -> hardware_pb2.Device:
        return hardware_pb2.Device(
            kind="cuda" if self.compute_capability else "cpu",
            compute_capability=self.compute_capability,
            name="scripted",
            memory_total_bytes=self.total_bytes,
            memory_free_bytes=self.free_bytes,
            compute_dtype="F32",
        )

    async def _connect(self, registered: "asyncio.Future[Any]") -> None:
        call = fellow_link_pb2_grpc.FellowLinkStub(self._channel).Connect(_drain(self._up), metadata=self.metadata)
        try:
            async for answer in call:
                if answer.WhichOneof("body") == "registered":
                    registered.set_result(answer.registered)
                else:
                    self.signals.append(answer.signal)
                    _keep(asyncio.create_task(self._obey(answer.signal)))
        except grpc.aio.AioRpcError as error:
            self.error = error
            if not registered.done():
                registered.set_exception(error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self.beats:
                self.beat()

    async def _obey(self, signal: fellow_link_pb2.Signal) -> None:
        """Do what a signal says, as the switches say it goes."""
        kind = signal.WhichOneof("kind")
        result = fellow_link_pb2.SignalResult(signal_id=signal.signal_id)
        if kind == "load":
            progress = fellow_link_pb2.SignalProgress(signal_id=signal.signal_id, step="fetch", done=1, total=2)
            self._up.put_nowait(fellow_link_pb2.ConnectRequest(progress=progress))
            await self.may_load.wait()
            if self.load_failure:
                result.failure.reason = reason_pb2.REASON_HASH_MISMATCH
                result.failure.message = self.load_failure
            else:
                addresses = [f"{self.ring_host}:{4000 + signal.load.spec.stage_index}"] if signal.load.listen else []
                status = stage_pb2.StageStatus(spec=signal.load.spec, memory_bytes=self.stage_bytes)
                held = fellow_link_pb2.HeldStage(status=status, ring_addresses=addresses)
                self.held[signal.load.spec.placement_id] = held
                result.load.ring_addresses.extend(addresses)
                result.load.fetched_bytes = 1234
                result.load.kv_tokens_measured = self.kv_tokens_measured
                result.load.MergeFrom(fellow_link_pb2.LoadDone(**self.loads_as))
        elif kind == "check":
            if self.answers_check is None:
                return
            result.check.is_alive = self.answers_check and signal.check.placement_id in self.held
            reached = [address for address in signal.check.addresses if address in self.connects_to]
            result.check.reached_address = reached[0] if reached else ""
        elif kind == "wire":
            if signal.wire.placement_id in self._covers:
                self.held[signal.wire.placement_id] = self._covers.pop(signal.wire.placement_id)
            self.held[signal.wire.placement_id].status.spec.epoch = signal.wire.epoch
            direct = signal.wire.route == stage_pb2.ROUTE_DIRECT
            result.wire.connected = self.reaches_directly if direct else self.reaches_relay
            result.wire.failure = "" if result.wire.connected else "connection refused"
            if not result.wire.connected:  # a stage's watcher tells of it too
                broken = fellow_link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
                self.report(broken, result.wire.failure, signal.wire.placement_id)
        elif kind == "probe":
            if self.probe_failure or self.probe_failures:
                self.probe_failures = max(0, self.probe_failures - 1)
                result.failure.reason = reason_pb2.REASON_DEADLINE
                result.failure.message = self.probe_failure or "no lap"
            else:
                result.probe.lap_ms = 12.5
        else:
            if kind == "unload":
                await self.may_unload.wait()
                self.held.pop(signal.unload.placement_id, None)
            if kind == "stop":
                self.held.clear()
            result.acknowledged.SetInParent()
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(result=result))

    async def _serve(self) -> None:
        call = inference_link_pb2_grpc.InferenceLinkStub(self._channel).Serve(
            _drain(self._events), metadata=self.metadata
        )
        async for answer in call:
            if answer.WhichOneof("body") == "cancel":
                self.cancels.append(answer.cancel.request_id)
                continue
            if answer.WhichOneof("body") == "resume":
                self.resumes.append(answer.resume)
                continue
            self.requests.append(answer.request)
            if self.replies_with is not None:
                self._reply(answer.request, self.replies_with)

    def _reply(self, request: inference_link_pb2.ReplyRequest, texts: list[str]) -> None:
        event = generation_pb2.GenerationEvent
        sampling = request.generation.sampling
        self.say(request.request_id, 1, started=event.Started(prompt_tokens=3, seed=sampling.seed))
        for sequence, text in enumerate(texts, start=2):
            self.say(request.request_id, sequence, tokens=event.TokenBatch(text=text, ids=[sequence]))
        done = event.Done(
            finish_reason=generation_pb2.FINISH_REASON_STOP, prompt_tokens=3, completion_tokens=len(texts)
        )
        self.say(request.request_id, len(texts) + 2, done=done)


async def _drain(queue: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    while True:
        yield await queue.get()


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: "asyncio.Task[None]") -> None:
    """asyncio holds tasks weakly; a task nobody keeps may vanish."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


@asynccontextmanager
async def joined(address: str, *fellows: ScriptedFellow) -> AsyncIterator[tuple[ScriptedFellow, ...]]:
    """The fellows, connected while the block runs."""
    try:
        for fellow in fellows:
            await fellow.join(address)
        yield fellows
    finally:
        for fellow in fellows:
            await fellow.leave()
