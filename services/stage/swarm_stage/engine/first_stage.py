"""Stage 0's side of every reply: admits, computes what is next, takes answers. On the engine thread; no torch, no gRPC.

What is next is decided elsewhere: admission.py, decode_groups.py, prompt_pieces.py, schedule.py.
"""

from collections.abc import Callable, Collection, Sequence

from silentswarm.core.v1 import generation_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, ContextTooLong, LinkBroken, Reason, SwarmError

from swarm_stage.engine.admission import Admission
from swarm_stage.engine.constraint_guard import ConstraintGuard
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.decode_groups import DecodeGroups
from swarm_stage.engine.frames import failure_error
from swarm_stage.engine.likelihoods import read_likelihoods
from swarm_stage.engine.next_steps import NextSteps
from swarm_stage.engine.prompt_pieces import PromptPieces
from swarm_stage.engine.rebuilding import REBUILD_TOKENS
from swarm_stage.engine.reply import Broke, Finished, Lap, Reply, Request, Tokens
from swarm_stage.engine.resuming import Resuming
from swarm_stage.engine.sampling import sampling_from_proto
from swarm_stage.engine.schedule import Planner
from swarm_stage.engine.sending import Answer, Sending, Work
from swarm_stage.engine.session_store import SessionStore
from swarm_stage.engine.step_costs import RingCosts
from swarm_stage.engine.steps import Compute, Step


class FirstStage:
    """Keeps every running reply moving.

    send: hands a batch to the link; never called in a ring of one. prefill_chunk: most prompt tokens of a piece, 0 is
    all. batch_max: most sessions of a decode step, 0 is no cap. tape_bytes_max: of hidden states kept for stage 1.
    rebuild_tokens: of a piece that rebuilds it.
    """

    items_max = None  # of the inbox in one round: all answers that are here step on together

    def __init__(
        self,
        compute: Compute,
        admission: Admission,
        counters: Counters,
        clock: Clock,
        send: Callable[[ring_pb2.FrameBatch], None],
        route: Callable[[], str],
        stage_count: int,
        prefill_chunk: int,
        batch_max: int = 0,
        tape_bytes_max: int = 0,
        rebuild_tokens: int = REBUILD_TOKENS,
    ) -> None:
        self._compute = compute
        self._admission = admission
        self._counters = counters
        self._clock = clock
        self._route = route
        self._stage_count = stage_count
        self._broken: SwarmError | None = LinkBroken("the ring is not wired yet; try again soon")
        self._number_last = 0
        self._session_last = 0
        self._replies: dict[int, Reply] = {}  # by number: all that run
        self._sessions: dict[int, Reply] = {}  # by session: those the ring has heard of
        self._ended: list[int] = []  # sessions whose End the other stages have not been sent
        self._store = SessionStore(compute, counters, tape_bytes_max if stage_count > 1 else 0)
        self._resuming = Resuming(self._store, stage_count, rebuild_tokens)
        answer = self._on_answer if stage_count == 1 else None
        self._sending = Sending(compute, self._store, counters, clock, send, self._fail, answer)
        self._costs = RingCosts(stage_count)
        self._planner = Planner(self._costs, batch_max if compute.batches else 1)
        self._groups = DecodeGroups()
        self._pieces = PromptPieces(self._planner, prefill_chunk)
        self._constraints = ConstraintGuard(clock, counters)
        self._steps = NextSteps(compute.vocabulary_size, stage_count == 1, self._constraints, counters)

    @property
    def has_work(self) -> bool:
        """A turn would do something."""
        if self._ended:
            return True
        decoding = self._groups.sessions
        return self._groups.may_send(self._planner.plan(decoding)) or self._pieces.may_send(decoding)

    @property
    def batches_out(self) -> int:
        """Decode batches in the ring."""
        return self._groups.out

    @property
    def pieces_out(self) -> int:
        """Prompt pieces in the ring."""
        return self._pieces.out

    def submit(self, request: Request) -> None:
        """Queue a request; it starts when its reservation fits. What never fits is refused here."""
        try:
            if self._broken is not None:
                raise self._broken
            sampling_from_proto(request.sampling, self._compute.vocabulary_size)  # refused before it waits
            self._admission.enqueue(request)
        except SwarmError as error:
            if isinstance(error, ContextTooLong):
                self._counters.too_long += 1
            else:
                self._counters.failed += not request.probe
            request.notify(Broke(error))
            return
        self._admit()

    def cancel(self, request_id: str) -> None:
        """End a reply, running or waiting; unknown ones are ignored."""
        self._admission.forget(request_id)
        for reply in self._named(request_id):
            self._drop(reply)
        self._admit()

    def conclude(self, request_id: str) -> None:
        """Finish a running reply now; one that has ended is ignored."""
        for reply in self._named(request_id):
            self._finish(reply, generation_pb2.FINISH_REASON_STOP)
        self._admit()

    def limit_kv(self, tokens: int | None) -> None:
        """Admit no more than the tightest stage of the ring holds, tokens; None is untold."""
        self._admission.limit_kv(tokens)

    def begin_epoch(
        self, epoch: int, why: SwarmError, keeps: bool = False, fresh: Collection[int] = frozenset()
    ) -> None:
        """Start a new ring: what ran on the older one ends, nothing of it is sent any more.

        keeps: sessions are kept for replies that go on. fresh: stages that hold nothing of an older epoch.
        """
        self._end_all(why, keeps)
        if keeps:
            self._resuming.begin_epoch(fresh, self._clock.monotonic_s())
        else:
            self._store.drop_kept()
            self._resuming.end_epoch()
        if 0 in fresh:
            self._store.drop_kept()
        self._broken = None
        self._sending.epoch = epoch
        self._session_last = 0

    def break_off(self, error: SwarmError) -> None:
        """The ring is broken: as fail_all, but replies may go on in the next epoch from what is kept here."""
        self._end_all(error, keeps=True)

    def fail_all(self, error: SwarmError) -> None:
        """Fail what runs, what waits, and what comes before the next epoch."""
        self._end_all(error, keeps=False)

    @property
    def expires_in_s(self) -> float | None:
        """Time until expire has something to do; None when it has not."""
        return self._store.expires_in_s(self._clock.monotonic_s())

    def expire(self) -> None:
        """Give up what was kept for too long."""
        self._store.expire(self._clock.monotonic_s())

    def _end_all(self, error: SwarmError, keeps: bool) -> None:
        self._broken = error
        for request in self._admission.drain():
            self._counters.failed += not request.probe
            request.notify(Broke(error))
        now_s = self._clock.monotonic_s()
        for reply in list(self._replies.values()):
            if keeps and reply.kept is not None:
                self._store.put_back(reply.kept)
                reply.kept = None
            elif keeps and reply.session and reply.generated:
                self._store.keep(reply.session, now_s)
            self._fail(reply, error)
        self._ended.clear()
        self.refresh_counters()

    def on_batch(self, batch: ring_pb2.FrameBatch, arrived_s: float) -> None:
        """Take the last stage's answers."""
        if batch.epoch != self._sending.epoch:
            self._counters.frames_refused += len(batch.frames)
            return
        for frame in batch.frames:
            reply = self._sessions.get(frame.session)
            if reply is None:
                continue  # the answer to a position that was in the ring when its session ended
            body = frame.WhichOneof("body")
            if body == "failure":
                self._on_failure(reply, failure_error(frame.failure))
            elif body == "sampled" and reply.due and frame.pos == reply.due[0][0]:
                self._on_sampled(reply, frame, arrived_s)
            elif body == "sampled":
                self._counters.frames_refused += 1  # a replay, or an answer nobody waits for: no effect
            else:
                self._counters.frames_refused += 1
                self._fail(reply, BadFrame(f"the last stage sent a {body} frame to stage 0"))
        self._admit()

    def turn(self) -> None:
        """Do one round: ends first, then every decode batch that may leave, then one prompt piece."""
        if self._ended:
            ends = [ring_pb2.Frame(session=session, end=ring_pb2.End()) for session in self._ended]
            self._sending.send(ends)
            self._ended.clear()
        for replies in self._groups.batches(self._planner.plan(self._groups.sessions)):
            self._pieces.earn(self._groups.sessions)
            work = self._work(replies, self._steps.decode)
            if work:
                self._sending.run(work)
        decoding = self._groups.sessions
        if self._pieces.may_send(decoding):
            self._send_piece(decoding)
        self._admit()  # a reply may have ended in this very turn

    def refresh_counters(self) -> None:
        """Bring the live figures up to date; once a round is enough."""
        counters = self._counters
        counters.sessions = len(self._replies)
        counters.waiting = self._admission.waiting
        counters.kv_tokens_reserved = self._admission.reserved_tokens
        counters.kv_tokens_max = self._admission.kv_tokens_max
        self._store.count()
        counters.last_busy_s = self._clock.monotonic_s()

    def _send_piece(self, decoding: int) -> None:
        reply, tokens = self._pieces.take(decoding)
        if not reply.session:
            # Numbered in the order in which the ring hears of them: later stages take no number below one they know.
            self._session_last += 1
            reply.session = self._session_last
            self._sessions[reply.session] = reply
            try:
                for frame in self._resuming.open(reply):
                    self._sending.send([frame])
            except SwarmError as error:  # no memory for it, or no such adapter; the others go on
                self._fail(reply, error)
                return
        tokens, is_rebuilding = self._resuming.piece(reply, tokens)
        work = self._work([reply], lambda reply: self._steps.prompt(reply, tokens))
        if work and is_rebuilding:
            self._sending.rebuild(*work[0], goes_further=self._resuming.is_next_fresh)
            self._tell_prompts()
        elif work:
            self._pieces.sent()
            self._sending.run(work)
        if reply.is_prefilling and reply.number in self._replies:
            self._pieces.add(reply)

    def _on_failure(self, reply: Reply, error: SwarmError) -> None:
        """A stage failed a session. One that lacks what it should have kept costs time, not the reply."""
        if error.why != Reason.SESSION_NOT_KEPT or not reply.resumes_at or reply.has_drawn:
            self._fail(reply, error)
            return
        self._pieces.drop(reply)
        self._leave_ring(reply)
        reply.due.clear()
        reply.session = reply.prompt_sent = reply.resumes_at = 0
        self._pieces.add(reply)

    def _work(self, replies: Sequence[Reply], make_step: Callable[[Reply], Step]) -> Work:
        """The next step of each reply; one whose constraint fails ends here, alone."""
        work: Work = []
        for reply in replies:
            try:
                work.append((reply, make_step(reply)))
            except SwarmError as error:
                self._fail(reply, error)
        return work

    def _on_sampled(self, reply: Reply, frame: ring_pb2.Frame, arrived_s: float) -> None:
        """Take the last stage's word."""
        sampled = frame.sampled
        try:
            top = reply.sampling.top_logprobs
            likelihoods = read_likelihoods(sampled, top, self._compute.vocabulary_size)
        except SwarmError as error:
            self._fail(reply, error)
            return
        self._on_answer(reply, Answer(sampled.tokens, likelihoods, frame.traces, arrived_s, frame.ByteSize()))

    def _on_answer(self, reply: Reply, answer: Answer) -> None:
        """Take one answer: a prompt piece's (no token, but for the last one), or the next token."""
        tokens, traces = answer.tokens, answer.traces
        if reply.request.probe:
            reply.request.notify(Lap(tuple(traces), tuple(tokens)))
            self._drop(reply)
            return
        _, positions = reply.due.popleft()
        is_token_due = not reply.due and not reply.is_prefilling
        if reply.has_drawn:
            self._note_step(reply, answer)
        else:
            self._pieces.answered()
            self._tell_prompts()
            if not reply.resumes_at:
                # One position says nothing of prompts: sixty would be foreseen at sixty times its price.
                self._costs.note_piece(positions, traces)
            reply.times.note_piece(traces, answer.arrived_s)
        if not tokens and not is_token_due:
            return
        if len(tokens) != 1 or not is_token_due or tokens[0] >= self._compute.vocabulary_size:
            wrong = f"the last stage answered {len(tokens)} tokens where one was due: {list(tokens[:4])}"
            self._fail(reply, BadFrame(wrong))
            return
        self._take_token(reply, tokens[0], answer)

    def _tell_prompts(self) -> None:
        """A piece came round: all whose prompts are not through hear that the ring moves."""
        for reply in self._replies.values():
            if reply.is_prefilling or (reply.due and not reply.has_drawn):
                reply.request.notify(Tokens(()))

    def _take_token(self, reply: Reply, token: int, answer: Answer) -> None:
        constraint = reply.request.constraint
        if constraint is not None:
            reply.allowed, reply.is_shaped = None, False
            try:
                self._constraints.accept(constraint, token)
            except SwarmError as error:
                self._fail(reply, error)
                return
        if not reply.has_drawn:
            reply.times.note_first_token(answer.arrived_s)
            if reply.request.resume_ids:
                self._counters.resumed_kept += reply.resumes_at > 0
                self._counters.resumed_anew += reply.resumes_at == 0
        reply.generated.append(token)
        self._counters.generated_tokens += 1
        reply.request.notify(Tokens((token,), answer.likelihoods))
        reason = reply.finish_reason()
        if reason == generation_pb2.FINISH_REASON_UNSPECIFIED:
            self._groups.add(reply)
        else:
            self._finish(reply, reason)

    def _note_step(self, reply: Reply, answer: Answer) -> None:
        assert reply.batch is not None  # a position behind the first token is only due while its batch is out
        sessions, started_s = reply.batch.sessions, reply.batch.started_s
        reply.times.note_token(answer.traces, answer.arrived_s, answer.answer_bytes, sessions)
        if self._groups.answered(reply):
            self._costs.note_step(sessions, answer.traces, (answer.arrived_s - started_s) * 1e3)

    def _finish(self, reply: Reply, reason: generation_pb2.FinishReason) -> None:
        reply.times.note_end(self._clock.monotonic_s())
        timing = reply.times.to_timing(reply.request.arrived_s, self._route())
        if timing.decode_ms > 0:
            self._counters.tokens_per_s = (reply.drawn - 1) * 1e3 / timing.decode_ms
        self._counters.first_token_s = (timing.queue_ms + timing.prefill_ms) / 1e3
        self._drop(reply)
        reply.request.notify(Finished(reason, len(reply.generated), timing))

    def _fail(self, reply: Reply, error: SwarmError) -> None:
        self._counters.failed += not reply.request.probe
        self._drop(reply)
        reply.request.notify(Broke(error))

    def _drop(self, reply: Reply) -> None:
        """Forget a session here at once, and on the other stages with the next turn's End."""
        self._replies.pop(reply.number, None)
        self._admission.leave(reply.number)
        self._groups.drop(reply)
        self._pieces.drop(reply)
        self._store.give_up(reply.kept)
        if reply.session:
            self._leave_ring(reply)

    def _leave_ring(self, reply: Reply) -> None:
        self._sessions.pop(reply.session, None)
        self._store.close(reply.session)
        if self._stage_count > 1:
            self._ended.append(reply.session)

    def _admit(self) -> None:
        """Start every waiting request that may, and tell the others where they stand."""
        while (request := self._admission.next_admissible(len(self._replies))) is not None:
            self._number_last += 1
            self._admission.enter(self._number_last, request)
            reply = Reply(request, self._number_last, generated=list(request.resume_ids))
            reply.times.admitted_s = self._clock.monotonic_s()
            reply.sampling = sampling_from_proto(request.sampling, self._compute.vocabulary_size)
            reply.remember_penalised()
            self._resuming.prepare(reply, reply.times.admitted_s)
            self._store.make_room(self._admission.kv_tokens_max - self._admission.reserved_tokens)
            self._replies[reply.number] = reply
            self._pieces.add(reply)
            self._counters.requests += not request.probe
        self._admission.tell_waiting(self._clock.monotonic_s(), len(self._replies))

    def _named(self, request_id: str) -> list[Reply]:
        return [reply for reply in self._replies.values() if reply.request.request_id == request_id]
