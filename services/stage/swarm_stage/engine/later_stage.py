"""Every stage but the first: takes hidden states, computes, passes on. Runs on the engine thread; no torch, no gRPC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from silentswarm.core.v1 import stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, Overloaded, SwarmError
from swarm_wire.codecs import check_coded
from swarm_wire.tensors import check_tensor
from swarm_wire.token_sets import mask_of

from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import elapsed_us, failure_frame, put_hidden
from swarm_stage.engine.likelihoods import add_likelihood
from swarm_stage.engine.reply import HELD_IDS_MAX
from swarm_stage.engine.sampling import Sampling, sampling_from_proto
from swarm_stage.engine.steps import Compute, Outcome, Step, WireHidden

SPARE_SESSIONS = 4  # sessions whose End is still on its way, and the probe, beside in_flight_max


@dataclass(frozen=True, slots=True)
class _Session:
    """What a session's first frame said. Of a middle stage it is empty: only the last one draws.

    sampling: how to draw. held_ids: what not to, before held_until_pos. prompt_ids: for a repetition penalty.
    drawn_ids: for any penalty, what was drawn before the session began.
    """

    sampling: Sampling | None = None
    held_ids: tuple[int, ...] = ()
    held_until_pos: int = 0
    prompt_ids: tuple[int, ...] = ()
    drawn_ids: tuple[int, ...] = ()


class LaterStage:
    """A middle or last stage. The last one samples and answers stage 0."""

    items_max = 1  # of the inbox in one round, so that look_ahead sees all that came in the meantime
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
        self._sessions: dict[int, _Session] = {}
        self._session_last = 0
        self._ended_early: set[int] = set()  # passed on by look_ahead; their frames before that have not come up yet

    def turn(self) -> None:
        """Nothing to do between frames."""

    def begin_epoch(self, epoch: int, why: SwarmError) -> None:
        """Start a new ring; the sessions of the older one are gone."""
        self.fail_all(why)
        self._epoch = epoch
        self._session_last = 0

    def limit_kv(self, tokens: int | None) -> None:
        """What stage 0 admits by, tokens; None is untold. It holds no stage to anything but is what its KV is of."""
        self._counters.kv_tokens_max = self._spec.kv_tokens if tokens is None else tokens

    def fail_all(self, error: SwarmError) -> None:
        """Drop every session; stage 0 tells the callers."""
        for session in list(self._sessions):
            self._drop(session)
        self._ended_early.clear()
        self.refresh_counters()

    def look_ahead(self, batches: Sequence[ring_pb2.FrameBatch]) -> None:
        """Take the ends out of batches that still wait: what is over is freed, and passed on, before any compute.

        An End travels in a batch of Ends, so the first frame tells.
        """
        for batch in batches:
            if batch.epoch != self._epoch or not batch.frames or not batch.frames[0].HasField("end"):
                continue
            fresh = [frame for frame in batch.frames if frame.HasField("end")]
            fresh = [frame for frame in fresh if frame.session not in self._ended_early]
            for frame in fresh:
                self._drop(frame.session)
            self._ended_early.update(frame.session for frame in fresh)
            if fresh and not self._is_last:
                self._send(ring_pb2.FrameBatch(epoch=self._epoch, frames=fresh))

    def on_batch(self, batch: ring_pb2.FrameBatch, arrived_s: float) -> None:
        """Run a batch, which came at arrived_s, and pass it on whole, order kept."""
        if batch.epoch != self._epoch:
            self._counters.frames_refused += len(batch.frames)
            return
        steps: dict[int, Step] = {}  # by place in the batch
        silent: list[int] = []  # places of frames that go no further
        seen: set[int] = set()
        for place, frame in enumerate(batch.frames):
            taken = self._take(frame, seen)
            if isinstance(taken, Step):
                steps[place] = taken
            elif not taken:
                silent.append(place)
        if steps:
            self._run(batch, steps, arrived_s)
        for place in reversed(silent):
            del batch.frames[place]
        if batch.frames:
            self._send(batch)

    def refresh_counters(self) -> None:
        """Bring the live figures up to date; once a round is enough."""
        self._counters.sessions = len(self._sessions)
        self._counters.kv_tokens_used = self._compute.held_tokens()
        self._counters.last_busy_s = self._clock.monotonic_s()

    def _take(self, frame: ring_pb2.Frame, seen: set[int]) -> Step | bool:
        """The step of one frame, or whether it goes further as it is now."""
        body = frame.WhichOneof("body")
        if frame.session in self._ended_early:
            if body == "end":
                self._ended_early.discard(frame.session)
            else:
                self._session_last = max(self._session_last, frame.session)
            return False
        if body == "end":
            self._drop(frame.session)
            return not self._is_last
        if body == "failure":
            self._drop(frame.session)
            return True
        try:
            if body != "hidden":
                raise BadFrame(f"stage {self._spec.stage_index} got a {body} frame")
            if frame.session in seen:
                raise BadFrame(f"session {frame.session} is in one batch twice")
            seen.add(frame.session)
            return self._step(frame)
        except SwarmError as error:
            self._refuse(frame, error)
            return True

    def _step(self, frame: ring_pb2.Frame) -> Step:
        """Check a hidden frame before anything is allocated. Raises BadFrame, BadRequest or Overloaded."""
        hidden = frame.hidden
        tensor, positions = self._check_hidden(hidden)
        stop = frame.pos + positions
        if stop > self._spec.context_tokens:
            raise BadFrame(f"positions up to {stop} where the context ends at {self._spec.context_tokens}")
        session = self._sessions.get(frame.session) or self._open(frame)
        self._counters.positions += positions
        if not self._is_last:
            return Step(frame.session, frame.pos, hidden=tensor, sample=hidden.sample)
        is_masked = hidden.sample and hidden.HasField("allowed")
        return Step(
            frame.session,
            frame.pos,
            None,
            tensor,
            session.sampling,
            sample=hidden.sample,
            held_ids=session.held_ids if stop < session.held_until_pos else (),
            allowed_V=mask_of(hidden.allowed, self._compute.vocabulary_size) if is_masked else None,
            prompt_ids=session.prompt_ids,
            drawn_ids=session.drawn_ids,
        )

    def _check_hidden(self, hidden: ring_pb2.Hidden) -> tuple[WireHidden, int]:
        """What came, in the one form this stage's link has, and how many positions it is. Raises BadFrame."""
        codec = self._spec.codec_in
        if hidden.HasField("hidden" if codec else "coded"):
            raise BadFrame(f"hidden state {'as it is' if codec else 'as codes'}; this link sends {codec or 'no codes'}")
        if codec:
            return hidden.coded, check_coded(hidden.coded, codec, self._hidden_size)
        tensor = hidden.hidden
        data_bytes = len(tensor.data)
        return tensor, check_tensor(tensor.dtype, tensor.shape, data_bytes, self._spec.dtype, self._hidden_size)

    def _open(self, frame: ring_pb2.Frame) -> _Session:
        if frame.pos != 0 or frame.session <= self._session_last:
            raise BadFrame(f"session {frame.session} is not known here and its frame starts at {frame.pos}")
        if len(self._sessions) >= self._spec.in_flight_max + SPARE_SESSIONS:
            raise Overloaded(f"stage {self._spec.stage_index} holds {len(self._sessions)} sessions already")
        session = self._read_session(frame.hidden) if self._is_last else _Session()
        self._session_last = frame.session
        reserved_tokens = min(frame.hidden.reserved_tokens, self._spec.context_tokens)
        self._compute.open(frame.session, reserved_tokens, frame.hidden.adapter)
        self._sessions[frame.session] = session
        self._counters.requests += not frame.hidden.probe
        return session

    def _read_session(self, hidden: ring_pb2.Hidden) -> _Session:
        """What the first frame says of drawing. Raises BadFrame, BadRequest."""
        hold, vocabulary_size = hidden.hold, self._compute.vocabulary_size
        if len(hold.ids) > HELD_IDS_MAX or any(token >= vocabulary_size for token in hold.ids):
            raise BadFrame(f"{len(hold.ids)} tokens to hold back; at most {HELD_IDS_MAX}, each below {vocabulary_size}")
        for ids in (hidden.prompt_ids, hidden.drawn_ids):
            if len(ids) > self._spec.context_tokens or any(token >= vocabulary_size for token in ids):
                most = f"at most {self._spec.context_tokens}, each below {vocabulary_size}"
                raise BadFrame(f"{len(ids)} tokens of a prompt or reply; {most}", tokens=len(ids))
        sampling = sampling_from_proto(hidden.sampling, vocabulary_size)
        prompt_ids = tuple(hidden.prompt_ids) if sampling.repetition_penalty != 1 else ()
        drawn_ids = tuple(hidden.drawn_ids) if sampling.counts_tokens else ()
        return _Session(sampling, tuple(hold.ids), hold.until_pos, prompt_ids, drawn_ids)

    def _run(self, batch: ring_pb2.FrameBatch, steps: dict[int, Step], arrived_s: float) -> None:
        """Compute the steps; their frames become what is passed on."""
        started_s = self._clock.monotonic_s()
        wait_us = elapsed_us(arrived_s, started_s)
        outcomes = self._forward(list(steps.values()))
        self._counters.busy_s += self._clock.monotonic_s() - started_s
        for place, outcome in zip(steps, outcomes, strict=True):
            frame = batch.frames[place]
            if outcome.error is None:
                self._fill(frame, outcome, wait_us)
            else:
                self._refuse(frame, outcome.error)

    def _forward(self, steps: list[Step]) -> list[Outcome]:
        if self._compute.batches:
            return self._compute.forward(steps)
        return [outcome for step in steps for outcome in self._compute.forward([step])]

    def _fill(self, frame: ring_pb2.Frame, outcome: Outcome, wait_us: int) -> None:
        """Turn a frame that came into the one that is passed on, in place: copying it would cost more than the rest."""
        trace = frame.traces.add(
            stage_index=self._spec.stage_index,
            compute_us=outcome.compute_us,
            received_bytes=frame.ByteSize(),
            wait_us=wait_us,
            sample_us=outcome.sample_us,
        )
        if frame.hidden.probe:
            trace.layer_start, trace.layer_stop = self._spec.layer_start, self._spec.layer_stop
        if not self._is_last:
            assert outcome.hidden is not None
            put_hidden(frame.hidden, outcome.hidden)
        elif outcome.token is None:
            frame.sampled.SetInParent()
        else:
            frame.sampled.tokens.append(outcome.token)
            if outcome.likelihood is not None:
                add_likelihood(frame.sampled, outcome.likelihood)

    def _refuse(self, frame: ring_pb2.Frame, error: SwarmError) -> None:
        """Turn a frame into the failure of its session."""
        self._counters.frames_refused += 1
        self._drop(frame.session)
        frame.CopyFrom(failure_frame(frame.session, self._spec.stage_index, error))

    def _drop(self, session: int) -> None:
        if self._sessions.pop(session, None) is not None:
            self._compute.close(session)
