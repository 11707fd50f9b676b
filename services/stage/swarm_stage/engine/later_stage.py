"""Every stage but the first: takes hidden states, computes, passes on. Runs on the engine thread; no torch, no gRPC."""

from collections.abc import Callable, Collection, Sequence

from silentswarm.core.v1 import stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, Overloaded, SessionNotKept, SwarmError
from swarm_wire.codecs import check_coded
from swarm_wire.tensors import check_tensor
from swarm_wire.token_sets import mask_of

from swarm_stage.engine.announced import Announced, read_announced
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import elapsed_us, failure_frame, put_hidden
from swarm_stage.engine.likelihoods import add_likelihood
from swarm_stage.engine.rebuilding import REBUILD_TOKENS, Backlog, rebuild_frames
from swarm_stage.engine.session_numbers import SessionNumbers
from swarm_stage.engine.session_store import KEY_BYTES, SessionStore
from swarm_stage.engine.steps import Compute, Outcome, Step, WireHidden

SPARE_SESSIONS = 4  # sessions whose End is still on its way, and the probe, beside in_flight_max


class LaterStage:
    """A middle or last stage. The last one samples and answers stage 0."""

    items_max = 1  # of the inbox in one round, so that look_ahead sees all that came in the meantime

    def __init__(
        self,
        compute: Compute,
        spec: stage_pb2.StageSpec,
        hidden_size: int,
        counters: Counters,
        clock: Clock,
        send: Callable[[ring_pb2.FrameBatch], None],
        tape_bytes_max: int = 0,
        rebuild_tokens: int = REBUILD_TOKENS,
    ) -> None:
        """tape_bytes_max: of hidden states kept for the next stage. rebuild_tokens: of a piece that rebuilds it."""
        self._compute = compute
        self._spec = spec
        self._hidden_size = hidden_size
        self._counters = counters
        self._clock = clock
        self._send = send
        self._epoch = 0
        self._is_last = spec.stage_index == spec.stage_count - 1
        self._sessions: dict[int, Announced] = {}
        self._numbers = SessionNumbers()
        self._ended_early: set[int] = set()  # passed on by look_ahead; their frames before that have not come up yet
        self._store = SessionStore(compute, counters, 0 if self._is_last else tape_bytes_max)
        self._rebuild_tokens = rebuild_tokens
        self._fresh: Collection[int] = ()  # stages that hold nothing of an older epoch
        self._rebuilding: set[int] = set()  # sessions that have not gone on yet
        self._backlog = Backlog()
        self._is_more_here = False  # behind the batch that was taken last
        self._has_stepped = False  # with that batch

    @property
    def has_work(self) -> bool:
        """Something waits behind others' steps."""
        return len(self._backlog) > 0

    @property
    def expires_in_s(self) -> float | None:
        """Time until expire has something to do; None when it has not."""
        return self._store.expires_in_s(self._clock.monotonic_s())

    def expire(self) -> None:
        """Give up what was kept for too long."""
        self._store.expire(self._clock.monotonic_s())

    def turn(self) -> None:
        """Do one of what waits: a piece that rebuilds a session, or its first step behind them."""
        if not len(self._backlog) or (self._is_more_here and not self._has_stepped):
            return  # first all that came is looked at: others' steps may be among it
        frame, arrived_s = self._backlog.take()
        if not frame.hidden.rebuilds:
            self.on_batch(ring_pb2.FrameBatch(epoch=self._epoch, frames=[frame]), arrived_s)
        elif self._rebuild(frame):
            self._send(ring_pb2.FrameBatch(epoch=self._epoch, frames=[frame]))

    def begin_epoch(
        self, epoch: int, why: SwarmError, keeps: bool = False, fresh: Collection[int] = frozenset()
    ) -> None:
        """Start a new ring. keeps: sessions of the older one are kept for replies that go on, else they are gone.

        fresh: stages that hold nothing of an older epoch.
        """
        if keeps:
            self.break_off(why)
        else:
            self.fail_all(why)
        if not keeps or self._spec.stage_index in fresh:
            self._store.drop_kept()
        self._fresh = frozenset(fresh) if keeps else frozenset()
        self._epoch = epoch
        self._numbers = SessionNumbers()

    def break_off(self, error: SwarmError) -> None:
        """The ring is broken: sessions may go on in the next epoch from what is kept here."""
        for session in list(self._sessions):
            self._store.keep(session, self._clock.monotonic_s())
        self.fail_all(error)

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
        self._is_more_here = bool(batches)
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
            taken = self._take(frame, seen, arrived_s)
            if isinstance(taken, Step):
                steps[place] = taken
            elif not taken:
                silent.append(place)
        self._has_stepped = bool(steps)
        if steps:
            self._run(batch, steps, arrived_s)
        for place in reversed(silent):
            del batch.frames[place]
        if batch.frames:
            self._send(batch)

    def refresh_counters(self) -> None:
        """Bring the live figures up to date; once a round is enough."""
        self._counters.sessions = len(self._sessions)
        self._store.count()
        self._counters.last_busy_s = self._clock.monotonic_s()

    def _take(self, frame: ring_pb2.Frame, seen: set[int], arrived_s: float) -> Step | bool:
        """The step of one frame, or whether it goes further as it is now."""
        body = frame.WhichOneof("body")
        if frame.session in self._ended_early:
            if body == "end":
                self._ended_early.discard(frame.session)
            else:
                self._numbers.hear(frame.session, may_be_late=True)
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
            if frame.hidden.rebuilds or self._backlog.waits(frame.session):
                self._postpone(frame, arrived_s)
                return False
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
        if hidden.resumes:
            session = self._resume(frame)
        elif frame.session in self._rebuilding:
            raise BadFrame(f"session {frame.session} is being rebuilt and must go on with a frame that says so")
        else:
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

    def _open(self, frame: ring_pb2.Frame) -> Announced:
        if frame.pos != 0:
            raise BadFrame(f"session {frame.session} is not known here and its frame starts at {frame.pos}")
        session = self._announced(frame)
        hidden = frame.hidden
        reserved_tokens = min(hidden.reserved_tokens, self._spec.context_tokens)
        if self._counters.kv_tokens_max:
            self._store.make_room(self._counters.kv_tokens_max - self._store.reserved_tokens - reserved_tokens)
        self._store.open(frame.session, hidden.reply_key, reserved_tokens, hidden.adapter)
        self._sessions[frame.session] = session
        self._counters.requests += not hidden.probe
        return session

    def _announced(self, frame: ring_pb2.Frame) -> Announced:
        """What the first frame of a session that is new here says. Raises BadFrame, BadRequest or Overloaded."""
        if len(self._sessions) >= self._spec.in_flight_max + SPARE_SESSIONS:
            raise Overloaded(f"stage {self._spec.stage_index} holds {len(self._sessions)} sessions already")
        key = frame.hidden.reply_key
        if len(key) not in (0, KEY_BYTES):
            raise BadFrame(f"a reply's key of {len(key)} bytes; it has {KEY_BYTES}")
        session = (
            read_announced(frame.hidden, self._compute.vocabulary_size, self._spec.context_tokens)
            if self._is_last
            else Announced()
        )
        goes_on = frame.hidden.resumes or frame.hidden.rebuilds
        if not self._numbers.hear(frame.session, may_be_late=goes_on):
            raise BadFrame(f"session {frame.session} is not known here, and {self._numbers.last} has begun already")
        return session

    def _resume(self, frame: ring_pb2.Frame) -> Announced:
        """Take up a session that goes on here. Raises SessionNotKept, and what _announced raises."""
        number, pos, hidden = frame.session, frame.pos, frame.hidden
        if number in self._rebuilding:
            if self._backlog.next_pos(number) != pos:
                raise BadFrame(f"session {number} was rebuilt to {self._backlog.next_pos(number)} and goes on at {pos}")
            self._rebuilding.discard(number)
            self._backlog.drop(number)
            return self._sessions[number]
        if number in self._sessions or not pos or not hidden.reply_key:
            raise BadFrame(f"session {number} goes on at {pos}, twice or without a key")
        session = self._announced(frame)
        kept = self._store.take(hidden.reply_key)
        if kept is None or not self._store.adopt(number, kept, pos):
            raise SessionNotKept(f"stage {self._spec.stage_index} keeps no {pos} positions of this reply")
        self._sessions[number] = session
        if self._is_next_fresh:
            tape = self._store.tape(number, pos)
            if tape is None:
                raise SessionNotKept(f"stage {self._spec.stage_index} does not hold what the next one is rebuilt from")
            for rebuild in rebuild_frames(number, tape, pos, self._rebuild_tokens, hidden):
                self._send(ring_pb2.FrameBatch(epoch=self._epoch, frames=[rebuild]))
        return session

    @property
    def _is_next_fresh(self) -> bool:
        return not self._is_last and self._spec.stage_index + 1 in self._fresh

    def _postpone(self, frame: ring_pb2.Frame, arrived_s: float) -> None:
        """Let a piece that rebuilds a session, or the step behind them, wait. Checked before anything is held."""
        number, pos, hidden = frame.session, frame.pos, frame.hidden
        _, positions = self._check_hidden(hidden)
        if self._spec.stage_index not in self._fresh or hidden.rebuilds == hidden.resumes:
            raise BadFrame(f"a frame of session {number} at {pos} rebuilds what is not lost, or is two things at once")
        if pos + positions > self._spec.context_tokens or pos != self._backlog.next_pos(number):
            raise BadFrame(f"session {number} is rebuilt to {self._backlog.next_pos(number)}; a frame starts at {pos}")
        if number not in self._sessions:
            self._open(frame)
            self._rebuilding.add(number)
        elif number not in self._rebuilding or self._backlog.is_whole(number):
            raise BadFrame(f"session {number} has gone on already and cannot be rebuilt")
        self._backlog.add(frame, positions if hidden.rebuilds else 0, arrived_s)

    def _rebuild(self, frame: ring_pb2.Frame) -> bool:
        """Compute one piece, in place. Whether it goes further: as a failure, or as the next stage is fresh too."""
        session, positions = self._sessions[frame.session], frame.hidden.hidden.shape or frame.hidden.coded.shape
        tensor = frame.hidden.coded if self._spec.codec_in else frame.hidden.hidden
        started_s = self._clock.monotonic_s()
        step = Step(frame.session, frame.pos, hidden=tensor, sampling=session.sampling, sample=False)
        outcome = self._compute.forward([step])[0]
        self._counters.busy_s += self._clock.monotonic_s() - started_s
        self._counters.positions_rebuilt += positions[0]
        if outcome.error is not None or frame.session not in self._rebuilding:
            self._refuse(frame, outcome.error or BadFrame(f"session {frame.session} was rebuilt after it went on"))
            return True
        if outcome.hidden is not None:
            self._store.record(frame.session, frame.pos, outcome.hidden)
            put_hidden(frame.hidden, outcome.hidden)
        return self._is_next_fresh

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
            self._store.record(frame.session, frame.pos, outcome.hidden)
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
        self._numbers.forget(session)
        if self._sessions.pop(session, None) is not None:
            self._store.close(session)
            self._rebuilding.discard(session)
            self._backlog.drop(session)
