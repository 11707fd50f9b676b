"""Every stage but the first: takes hidden states, computes, passes on. Runs on the engine thread; no torch, no gRPC."""

from collections.abc import Callable
from dataclasses import dataclass

from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, Overloaded, SwarmError
from swarm_wire.tensors import check_tensor

from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import failure_frame
from swarm_stage.engine.steps import Compute, Outcome, Step

SPARE_SESSIONS = 4  # sessions whose End is still on its way, and the probe, beside in_flight_max


@dataclass(frozen=True)
class _Work:
    """A frame that computes, with its step."""

    frame: ring_pb2.Frame
    step: Step


class LaterStage:
    """A middle or last stage. The last one samples and answers stage 0."""

    has_work = False  # it only ever answers frames

    def __init__(
        self,
        compute: Compute,
        spec: stage_pb2.StageSpec,
        hidden_size: int,
        counters: Counters,
        clock: Clock,
        send: Callable[[ring_pb2.FrameBatch], None],
    ) -> None:
        self._compute = compute
        self._spec = spec
        self._hidden_size = hidden_size
        self._counters = counters
        self._clock = clock
        self._send = send
        self._epoch = 0
        self._is_last = spec.stage_index == spec.stage_count - 1
        self._sessions: dict[int, generation_pb2.Sampling] = {}
        self._session_last = 0

    def turn(self) -> None:
        """Nothing to do between frames."""

    def begin_epoch(self, epoch: int, why: SwarmError) -> None:
        """Start a new ring; the sessions of the older one are gone."""
        self.fail_all(why)
        self._epoch = epoch
        self._session_last = 0

    def fail_all(self, error: SwarmError) -> None:
        """Drop every session; stage 0 tells the callers."""
        for session in list(self._sessions):
            self._drop(session)
        self._refresh_counters()

    def on_batch(self, batch: ring_pb2.FrameBatch) -> None:
        """Run a batch and pass it on whole, order kept."""
        if batch.epoch != self._epoch:
            self._counters.frames_refused += len(batch.frames)
            return
        results: list[ring_pb2.Frame | _Work] = []
        seen: set[int] = set()
        for frame in batch.frames:
            results.extend(self._take(frame, seen))
        work = [result for result in results if isinstance(result, _Work)]
        outcomes = iter(self._compute.forward([item.step for item in work]) if work else ())
        frames = [self._pass_on(result, next(outcomes)) if isinstance(result, _Work) else result for result in results]
        self._refresh_counters()
        if frames:
            self._send(ring_pb2.FrameBatch(epoch=self._epoch, frames=frames))

    def _take(self, frame: ring_pb2.Frame, seen: set[int]) -> list[ring_pb2.Frame | _Work]:
        """What to do with one frame: work, frames to pass on, or nothing."""
        body = frame.WhichOneof("body")
        if body == "end":
            self._drop(frame.session)
            return [] if self._is_last else [frame]
        if body == "failure":
            self._drop(frame.session)
            return [frame]
        try:
            if body != "hidden":
                raise BadFrame(f"stage {self._spec.stage_index} got a {body} frame")
            if frame.session in seen:
                raise BadFrame(f"session {frame.session} is in one batch twice")
            seen.add(frame.session)
            return [_Work(frame, self._step(frame))]
        except SwarmError as error:
            return [self._refuse(frame.session, error)]

    def _step(self, frame: ring_pb2.Frame) -> Step:
        """Check a hidden frame before anything is allocated. Raises BadFrame or Overloaded."""
        hidden = frame.hidden
        positions = check_tensor(
            hidden.hidden.dtype,
            hidden.hidden.shape,
            len(hidden.hidden.data),
            self._spec.dtype,
            self._hidden_size,
        )
        if frame.pos + positions > self._spec.context_tokens:
            end = frame.pos + positions
            raise BadFrame(f"positions up to {end} where the context ends at {self._spec.context_tokens}")
        if frame.session not in self._sessions:
            self._open(frame)
        self._counters.positions += positions
        sampling = self._sessions[frame.session] if self._is_last else None
        return Step(frame.session, frame.pos, hidden=hidden.hidden, sampling=sampling, sample=hidden.sample)

    def _open(self, frame: ring_pb2.Frame) -> None:
        if frame.pos != 0 or frame.session <= self._session_last:
            raise BadFrame(f"session {frame.session} is not known here and its frame starts at {frame.pos}")
        if len(self._sessions) >= self._spec.in_flight_max + SPARE_SESSIONS:
            raise Overloaded(f"stage {self._spec.stage_index} holds {len(self._sessions)} sessions already")
        self._session_last = frame.session
        self._sessions[frame.session] = frame.hidden.sampling
        self._compute.open(frame.session)
        self._counters.requests += 0 if frame.hidden.probe else 1

    def _pass_on(self, work: _Work, outcome: Outcome) -> ring_pb2.Frame:
        frame = work.frame
        if outcome.error is not None:
            return self._refuse(frame.session, outcome.error)
        trace = ring_pb2.Trace(
            stage_index=self._spec.stage_index, compute_us=outcome.compute_us, received_bytes=frame.ByteSize()
        )
        if frame.hidden.probe:
            trace.layer_start, trace.layer_stop = self._spec.layer_start, self._spec.layer_stop
        passed = ring_pb2.Frame(session=frame.session, pos=frame.pos, traces=[*frame.traces, trace])
        if self._is_last:
            passed.sampled.tokens.extend([] if outcome.token is None else [outcome.token])
            passed.sampled.SetInParent()
        else:
            passed.hidden.CopyFrom(
                ring_pb2.Hidden(hidden=outcome.hidden, sample=frame.hidden.sample, probe=frame.hidden.probe)
            )
            if frame.pos == 0:
                passed.hidden.sampling.CopyFrom(frame.hidden.sampling)
        return passed

    def _refuse(self, session: int, error: SwarmError) -> ring_pb2.Frame:
        self._counters.frames_refused += 1
        self._drop(session)
        return failure_frame(session, self._spec.stage_index, error)

    def _drop(self, session: int) -> None:
        self._sessions.pop(session, None)
        self._compute.close(session)

    def _refresh_counters(self) -> None:
        self._counters.sessions = len(self._sessions)
        self._counters.kv_tokens_used = self._compute.held_tokens()
        self._counters.last_busy_s = self._clock.monotonic_s()
