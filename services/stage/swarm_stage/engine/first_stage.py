"""Stage 0's side of every reply: admits, schedules steps, takes answers. On the engine thread; no torch, no gRPC."""

from collections import deque
from collections.abc import Callable, Sequence

from silentswarm.core.v1 import generation_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadFrame, LinkBroken, SwarmError

from swarm_stage.engine.admission import Admission
from swarm_stage.engine.counters import Counters
from swarm_stage.engine.frames import failure_error
from swarm_stage.engine.reply import Broke, Finished, Lap, Reply, Request, Tokens, timing_of
from swarm_stage.engine.steps import Compute, Outcome, Step


class FirstStage:
    """Keeps every running reply moving.

    send: hands a batch to the link; never called in a ring of one. prefill_chunk: prompt tokens per piece, 0 is all.
    """

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
    ) -> None:
        self._compute = compute
        self._admission = admission
        self._counters = counters
        self._clock = clock
        self._send = send
        self._route = route
        self._stage_count = stage_count
        self._prefill_chunk = prefill_chunk
        self._epoch = 0
        self._broken: SwarmError | None = LinkBroken("this stage has not joined a ring yet")
        self._session_last = 0
        self._replies: dict[int, Reply] = {}
        self._prefilling: deque[Reply] = deque()
        self._ready: deque[Reply] = deque()
        self._ended: list[int] = []  # sessions whose End the other stages have not been sent

    @property
    def has_work(self) -> bool:
        """A turn would do something."""
        can_prefill = any(self._may_send_piece(reply) for reply in self._prefilling)
        return bool(self._ready or self._ended or can_prefill)

    def submit(self, request: Request) -> None:
        """Queue a request; it starts when its reservation fits. What never fits is refused here."""
        try:
            if self._broken is not None:
                raise self._broken
            self._admission.enqueue(request)
        except SwarmError as error:
            request.notify(Broke(error))
            return
        self._admit()

    def cancel(self, request_id: str) -> None:
        """End a reply, running or waiting; unknown ones are ignored."""
        self._admission.forget(request_id)
        for reply in list(self._replies.values()):
            if reply.request.request_id == request_id:
                self._drop(reply)
        self._admit()

    def conclude(self, request_id: str) -> None:
        """Finish a running reply now; one that has ended is ignored."""
        for reply in list(self._replies.values()):
            if reply.request.request_id == request_id:
                self._finish(reply, generation_pb2.FINISH_REASON_STOP)
        self._admit()

    def limit_kv(self, tokens: int) -> None:
        """Admit no more than the tightest stage of the ring holds, tokens."""
        self._admission.limit_kv(tokens)

    def begin_epoch(self, epoch: int, why: SwarmError) -> None:
        """Start a new ring: what ran on the older one fails, nothing of it is sent any more."""
        self.fail_all(why)
        self._broken = None
        self._epoch = epoch
        self._session_last = 0

    def fail_all(self, error: SwarmError) -> None:
        """The ring is broken: fail what runs, what waits, and what comes before the next epoch."""
        self._broken = error
        for request in self._admission.drain():
            request.notify(Broke(error))
        for reply in list(self._replies.values()):
            self._fail(reply, error)
        self._ended.clear()

    def on_batch(self, batch: ring_pb2.FrameBatch) -> None:
        """Take the last stage's answers."""
        if batch.epoch != self._epoch:
            self._counters.frames_refused += len(batch.frames)
            return
        for frame in batch.frames:
            reply = self._replies.get(frame.session)
            if reply is None:
                continue  # the answer to a position that was in the ring when its session ended
            body = frame.WhichOneof("body")
            if body == "failure":
                self._fail(reply, failure_error(frame.failure))
            elif body == "sampled" and reply.due and frame.pos == reply.due[0]:
                reply.times.answer_bytes = frame.ByteSize()
                self._on_answer(reply, list(frame.sampled.tokens), frame.traces)
            elif body == "sampled":
                self._counters.frames_refused += 1  # a replay, or an answer nobody waits for: no effect
            else:
                self._counters.frames_refused += 1
                self._fail(reply, BadFrame(f"the last stage sent a {body} frame to stage 0"))
        self._admit()

    def turn(self) -> None:
        """Do one round: ends first, then every ready decode step as one batch, then one prompt piece."""
        if self._ended:
            self._send_frames([ring_pb2.Frame(session=session, end=ring_pb2.End()) for session in self._ended])
            self._ended.clear()
        decoding = [self._ready.popleft() for _ in range(len(self._ready))]
        if decoding:
            self._run([(reply, self._decode_step(reply)) for reply in decoding if reply.session in self._replies])
        piece = next((reply for reply in self._prefilling if self._may_send_piece(reply)), None)
        if piece is not None:
            self._prefilling.remove(piece)
            self._run([(piece, self._prompt_step(piece))])
            if piece.is_prefilling and piece.session in self._replies:
                self._prefilling.append(piece)
        self._admit()  # a reply may have ended in this very turn

    def _decode_step(self, reply: Reply) -> Step:
        return Step(reply.session, reply.next_pos, ids=(reply.generated[-1],), sampling=reply.request.sampling)

    def _prompt_step(self, reply: Reply) -> Step:
        prompt, start = reply.request.prompt_ids, reply.prompt_sent
        stop = min(len(prompt), start + self._prefill_chunk) if self._prefill_chunk else len(prompt)
        reply.prompt_sent = stop
        is_final = stop == len(prompt)
        return Step(reply.session, start, ids=prompt[start:stop], sampling=reply.request.sampling, sample=is_final)

    def _may_send_piece(self, reply: Reply) -> bool:
        # One piece per stage in the ring keeps every stage busy; more would only queue before others' tokens.
        return len(reply.due) < self._stage_count

    def _run(self, work: Sequence[tuple[Reply, Step]]) -> None:
        """Compute steps and pass on what came of them."""
        if not work:
            return
        outcomes = self._compute.forward([step for _, step in work])
        frames: list[ring_pb2.Frame] = []
        for (reply, step), outcome in zip(work, outcomes, strict=True):
            self._counters.positions += len(step.ids or ())
            reply.due.append(step.pos)
            if outcome.error is not None:
                self._fail(reply, outcome.error)
            elif self._stage_count == 1:
                trace = ring_pb2.Trace(stage_index=0, compute_us=outcome.compute_us)
                self._on_answer(reply, [] if outcome.token is None else [outcome.token], [trace])
            else:
                frames.append(self._hidden_frame(reply, step, outcome))
        self._send_frames(frames)

    def _hidden_frame(self, reply: Reply, step: Step, outcome: Outcome) -> ring_pb2.Frame:
        is_first = step.pos == 0
        hidden = ring_pb2.Hidden(
            hidden=outcome.hidden,
            sample=step.sample,
            probe=reply.request.probe,
            sampling=reply.request.sampling if is_first else None,
        )
        trace = ring_pb2.Trace(stage_index=0, compute_us=outcome.compute_us)
        return ring_pb2.Frame(session=step.session, pos=step.pos, hidden=hidden, traces=[trace])

    def _on_answer(self, reply: Reply, tokens: list[int], traces: Sequence[ring_pb2.Trace]) -> None:
        """Take one answer: a prompt piece's (no token), or the next token."""
        if reply.request.probe:
            reply.request.notify(Lap(tuple(traces), tuple(tokens)))
            self._drop(reply)
            return
        reply.due.popleft()
        is_token_due = not reply.due and not reply.is_prefilling
        if not tokens and not is_token_due:
            reply.request.notify(Tokens(()))
            return
        if len(tokens) != 1 or not is_token_due or tokens[0] >= self._compute.vocabulary_size:
            self._fail(reply, BadFrame(f"the last stage answered {len(tokens)} tokens where one was due: {tokens[:4]}"))
            return
        self._note_times(reply, traces)
        reply.generated.append(tokens[0])
        reply.request.notify(Tokens((tokens[0],)))
        reason = reply.finish_reason()
        if reason == generation_pb2.FINISH_REASON_UNSPECIFIED:
            self._ready.append(reply)
        else:
            self._finish(reply, reason)

    def _note_times(self, reply: Reply, traces: Sequence[ring_pb2.Trace]) -> None:
        now_s, times = self._clock.monotonic_s(), reply.times
        if times.first_token_s is None:
            times.first_token_s = now_s
            times.stage_us = [0] * len(traces)
        else:
            times.stage_us = [a + trace.compute_us for a, trace in zip(times.stage_us, traces, strict=False)]
            times.decode_bytes += sum(trace.received_bytes for trace in traces[1:]) + times.answer_bytes
        times.last_token_s = now_s

    def _finish(self, reply: Reply, reason: generation_pb2.FinishReason) -> None:
        timing = timing_of(reply, self._route())
        if timing.decode_ms > 0:
            self._counters.tokens_per_s = (len(reply.generated) - 1) * 1e3 / timing.decode_ms
        self._counters.first_token_s = (timing.queue_ms + timing.prefill_ms) / 1e3
        self._drop(reply)
        reply.request.notify(Finished(reason, len(reply.generated), timing))

    def _fail(self, reply: Reply, error: SwarmError) -> None:
        self._drop(reply)
        reply.request.notify(Broke(error))

    def _drop(self, reply: Reply) -> None:
        """Forget a session here at once, and on the other stages with the next turn's End."""
        self._replies.pop(reply.session, None)
        self._compute.close(reply.session)
        self._admission.leave(reply.session)
        for queue in (self._ready, self._prefilling):
            if reply in queue:
                queue.remove(reply)
        if self._stage_count > 1 and reply.prompt_sent:
            self._ended.append(reply.session)
        self._refresh_counters()

    def _admit(self) -> None:
        """Start every waiting request that fits, in order."""
        while (request := self._admission.next_admissible(len(self._replies))) is not None:
            self._session_last += 1
            session = self._session_last
            self._admission.enter(session, request)
            reply = Reply(request, session)
            reply.times.admitted_s = self._clock.monotonic_s()
            self._replies[session] = reply
            self._prefilling.append(reply)
            self._compute.open(session)
            self._counters.requests += 0 if request.probe else 1
        self._refresh_counters()

    def _refresh_counters(self) -> None:
        self._counters.sessions = len(self._replies)
        self._counters.kv_tokens_reserved = self._admission.reserved_tokens
        self._counters.kv_tokens_used = self._compute.held_tokens()
        self._counters.last_busy_s = self._clock.monotonic_s()

    def _send_frames(self, frames: list[ring_pb2.Frame]) -> None:
        if frames:
            self._send(ring_pb2.FrameBatch(epoch=self._epoch, frames=frames))
