"""Signals of one connection: each runs as a task within its time and gets exactly one result. Decides by kind alone."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog
from silentswarm.core.v1 import link_pb2 as core_link_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, Conflict, DeadlinePassed, ModelNotReady, Overloaded, StaleEpoch, SwarmError
from swarm_rpc.tls import Trust

from swarm_fellow.flows.checks import check
from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.load import Loader
from swarm_fellow.flows.maintenance import Maintenance
from swarm_fellow.flows.stages import HeldStage, StageTable
from swarm_fellow.rpc.convert import describe_stage, failure_to_proto

log = structlog.get_logger()

SIGNALS_AT_ONCE_MAX = 64
SIGNALS_REMEMBERED = 1024  # for "at most once per connection"; a leader repeats at once or never
PROGRESS_INTERVAL_S = 0.5
CLOSE_S = 1.0
ANSWER_MARGIN_S = 0.5  # of a signal's time, kept for the way back
TIMEOUT_DEFAULT_S = 30.0  # for a signal that names none
STEP_WAITING = "starting"

# Takes a message for the leader; False when it was not taken because the link is full.
Send = Callable[[link_pb2.ConnectRequest], bool]


class SignalRunner:
    """Runs the signals of one connection.

    relay_default: the relay to use when a WIRE names none. relay_trust: what a relay at this address must prove.
    begin_restart: called once an UPDATE is answered.
    """

    def __init__(
        self,
        table: StageTable,
        loader: Loader,
        covers: Covers,
        maintenance: Maintenance,
        clock: Clock,
        relay_default: str,
        send: Send,
        relay_trust: Callable[[str], Trust | None] = lambda relay_address: None,
        begin_restart: Callable[[], None] = lambda: None,
    ) -> None:
        self._table = table
        self._loader = loader
        self._covers = covers
        self._maintenance = maintenance
        self._begin_restart = begin_restart
        self._clock = clock
        self._relay_default = relay_default
        self._relay_trust = relay_trust
        self._send = send
        self._tasks: set[asyncio.Task] = set()
        self._seen: deque[int] = deque(maxlen=SIGNALS_REMEMBERED)
        self._kinds: dict[str | None, Callable[[Any, _Steps], Awaitable[link_pb2.SignalResult]]] = {
            "load": self._load,
            "unload": self._unload,
            "wire": self._wire,
            "probe": self._probe,
            "stop": self._stop,
            "ping": self._ping,
            "purge": self._purge,
            "update": self._update,
            "check": self._check,
            "cover": self._cover,
            "uncover": self._uncover,
        }

    def start(self, signal: link_pb2.Signal) -> None:
        """Begin a signal; one seen before on this connection is ignored."""
        if signal.signal_id in self._seen:
            return
        self._seen.append(signal.signal_id)
        if len(self._tasks) >= SIGNALS_AT_ONCE_MAX:
            refusal = Overloaded(f"{SIGNALS_AT_ONCE_MAX} signals run already on this fellow")
            self._answer(signal, link_pb2.SignalResult(failure=failure_to_proto(refusal)))
            return
        task = asyncio.create_task(self._run(signal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The connection is over: undo loads that run; nobody waits for results any more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)  # the rest ends by itself; its stages are not held

    async def _run(self, signal: link_pb2.Signal) -> None:
        kind = signal.WhichOneof("kind")
        allowed_s = signal.timeout_ms / 1000 or TIMEOUT_DEFAULT_S
        steps = _Steps(signal.signal_id, self._clock, self._send)
        try:
            if kind not in self._kinds:
                raise BadRequest("this fellow does not know this kind of signal; update it", field="kind")
            async with asyncio.timeout(max(allowed_s - ANSWER_MARGIN_S, allowed_s / 2)) as allowance:
                steps.deadline_s = allowance.when() or 0.0
                result = await self._kinds[kind](getattr(signal, kind), steps)
        except SwarmError as error:
            log.warning("signal failed", kind=kind, why=error.message)
            result = link_pb2.SignalResult(failure=failure_to_proto(error))
        except TimeoutError:
            late = DeadlinePassed(f"{(kind or '').upper()} took longer than {allowed_s:g} s; it was at {steps.step!r}")
            result = link_pb2.SignalResult(failure=failure_to_proto(late))
        except Exception as error:
            log.error("signal failed by a bug of ours", kind=kind, exc_info=error)
            words = SwarmError(f"internal error on the fellow: {type(error).__name__}; see its log")
            result = link_pb2.SignalResult(failure=failure_to_proto(words))
        self._answer(signal, result)
        if kind == "update" and result.HasField("acknowledged"):
            self._begin_restart()

    def _answer(self, signal: link_pb2.Signal, result: link_pb2.SignalResult) -> None:
        result.signal_id = signal.signal_id
        self._send(link_pb2.ConnectRequest(result=result))

    async def _load(self, signal: link_pb2.LoadSignal, steps: "_Steps") -> link_pb2.SignalResult:
        return link_pb2.SignalResult(load=await self._loader.load(signal, steps.report))

    async def _unload(self, signal: link_pb2.UnloadSignal, steps: "_Steps") -> link_pb2.SignalResult:
        await self._loader.call_off(signal.placement_id)
        await asyncio.gather(self._table.end_placement(signal.placement_id), self._covers.end(signal.placement_id))
        return _acknowledged()

    async def _stop(self, signal: link_pb2.StopSignal, steps: "_Steps") -> link_pb2.SignalResult:
        await self._maintenance.end_stages()
        return _acknowledged()

    async def _purge(self, signal: link_pb2.PurgeSignal, steps: "_Steps") -> link_pb2.SignalResult:
        await self._maintenance.purge()
        return _acknowledged()

    async def _update(self, signal: link_pb2.UpdateSignal, steps: "_Steps") -> link_pb2.SignalResult:
        await self._maintenance.end_stages()
        return _acknowledged()

    async def _check(self, signal: link_pb2.CheckSignal, steps: "_Steps") -> link_pb2.SignalResult:
        tell_waiting = partial(steps.report, "answer", 0, 1)
        return link_pb2.SignalResult(check=await check(self._table, signal, steps.remaining_s(), tell_waiting))

    async def _cover(self, signal: link_pb2.CoverSignal, steps: "_Steps") -> link_pb2.SignalResult:
        return link_pb2.SignalResult(cover=await self._covers.cover(signal, steps.report))

    async def _uncover(self, signal: link_pb2.UncoverSignal, steps: "_Steps") -> link_pb2.SignalResult:
        await self._covers.end(signal.placement_id, signal.stage_index)
        return _acknowledged()

    async def _ping(self, signal: link_pb2.PingSignal, steps: "_Steps") -> link_pb2.SignalResult:
        return _acknowledged()

    async def _wire(self, signal: link_pb2.WireSignal, steps: "_Steps") -> link_pb2.SignalResult:
        stage = await self._wired(signal)
        if signal.epoch < stage.spec.epoch:
            raise StaleEpoch(
                f"{describe_stage(stage.spec)} is at epoch {stage.spec.epoch}, not {signal.epoch}",
                held_epoch=stage.spec.epoch,
                epoch=signal.epoch,
            )
        stage.spec.epoch = signal.epoch  # from here on replies of the older epoch are refused
        steps.step = "waiting for the next stage"
        relay_address = signal.relay_address or self._relay_default
        request = rpc_pb2.WireRequest(
            epoch=signal.epoch,
            route=signal.route,
            next_addresses=signal.next_addresses,
            relay_address=relay_address,
            previous_route=signal.previous_route,
            timeout_ms=int(steps.remaining_s() * 1000),
        )
        request.keep_sessions = signal.keep_sessions
        request.fresh_stages.extend(signal.fresh_stages)
        if signal.HasField("kv_tokens"):
            request.kv_tokens = signal.kv_tokens
        if signal.HasField("keys"):
            request.keys.CopyFrom(signal.keys)
        if (trust := self._relay_trust(relay_address)) is not None:
            request.relay_trust.CopyFrom(core_link_pb2.PeerTrust(roots=trust.roots, name=trust.name))
        answer = await stage.client().wire(request)
        return link_pb2.SignalResult(wire=link_pb2.WireDone(connected=answer.connected, failure=answer.failure))

    async def _probe(self, signal: link_pb2.ProbeSignal, steps: "_Steps") -> link_pb2.SignalResult:
        stage = self._held(signal.placement_id)
        steps.step = "waiting for the lap"
        lap = await stage.client().probe(steps.remaining_s())
        return link_pb2.SignalResult(probe=link_pb2.ProbeDone(lap_ms=lap.lap_ms, stage_ms=lap.stage_ms))

    async def _wired(self, signal: link_pb2.WireSignal) -> HeldStage:
        """The stage that is meant, which may be a cover until now. Raises ModelNotReady, Conflict."""
        if not signal.HasField("stage_index"):
            return self._held(signal.placement_id)
        stage = self._table.find(signal.placement_id)
        if stage is None:
            stage = await self._loader.switch_in(signal.placement_id, signal.stage_index, signal.epoch)
        if stage is None:
            return self._held(signal.placement_id)
        if stage.spec.stage_index != signal.stage_index:
            raise Conflict(f"this fellow holds {describe_stage(stage.spec)}", placement=signal.placement_id)
        return stage

    def _held(self, placement_id: str) -> HeldStage:
        stage = self._table.find(placement_id)
        if stage is None:
            raise ModelNotReady(
                f"this fellow holds no loaded stage of placement {placement_id}", placement=placement_id
            )
        return stage


class _Steps:
    """Where a signal is: told to the leader at most every 0.5 s, and kept for the words of a passed deadline."""

    def __init__(self, signal_id: int, clock: Clock, send: Send) -> None:
        self.step = STEP_WAITING
        self.deadline_s = 0.0
        self._signal_id = signal_id
        self._clock = clock
        self._send = send
        self._told_s = float("-inf")

    def remaining_s(self) -> float:
        """What is left for the stage, in seconds, less a margin for its answer."""
        left_s = self.deadline_s - asyncio.get_running_loop().time()
        return max(left_s - ANSWER_MARGIN_S, left_s / 2, 0.05)

    def report(self, step: str, done: int, total: int) -> None:
        """Say how far it is; a new step is told at once."""
        now_s = self._clock.monotonic_s()
        if step == self.step and now_s - self._told_s < PROGRESS_INTERVAL_S:
            return
        self.step, self._told_s = step, now_s
        progress = link_pb2.SignalProgress(signal_id=self._signal_id, step=step, done=done, total=total)
        self._send(link_pb2.ConnectRequest(progress=progress))


def _acknowledged() -> link_pb2.SignalResult:
    return link_pb2.SignalResult(acknowledged=link_pb2.Acknowledged())
