"""One reply from request to events, on the event loop: text in, tokens through the engine, text out. No torch."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from silentswarm.core.v1 import generation_pb2, reason_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, DeadlinePassed, SwarmError

from swarm_stage.engine.engine import Cancel, Conclude, Submit
from swarm_stage.engine.inbox import Inbox
from swarm_stage.engine.reply import Admitted, Broke, Finished, Lap, Note, Request, Tokens
from swarm_stage.text.codec import TextCodec
from swarm_stage.text.detokenizer import Detokenizer
from swarm_stage.text.stop_strings import StopMatcher

NEW_TOKENS_DEFAULT = 1024  # a reply nobody bounded; the context bounds it further
PROGRESS_TIMEOUT_S = 120.0  # no answer at all, not even to a prompt piece: a stage is frozen
SIGN_OF_LIFE_S = 5.0  # how often a long prompt says that it moves

_Event = generation_pb2.GenerationEvent


@dataclass(frozen=True)
class ModelLimits:
    """What a request is checked against."""

    vocabulary_size: int
    context_tokens: int


class Replies:
    """Turns generations into events. codec is None for a model without a tokenizer: token ids only."""

    def __init__(self, inbox: Inbox, codec: TextCodec | None, limits: ModelLimits, clock: Clock) -> None:
        self._inbox = inbox
        self._codec = codec
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    async def generate(self, request_id: str, generation: generation_pb2.Generation) -> AsyncIterator[_Event]:
        """Events of one reply; leaving the iterator early ends the session on every stage.

        Raises BadRequest for input that cannot be used; every later failure is a Failed event.
        """
        prompt_ids = await asyncio.to_thread(self._encode, generation)
        notes: asyncio.Queue[Note] = asyncio.Queue()  # bounded by new_tokens_max, which admission has reserved
        request = self._request(request_id, generation, prompt_ids, notes)
        await self._inbox.put(Submit(request))
        writer = _EventWriter(self._codec, list(generation.stop), request)
        try:
            while not writer.is_over:
                for event in writer.events(await self._next_notes(notes)):
                    yield event
                if writer.wants_conclusion:
                    self._inbox.put_now(Conclude(request_id))
        finally:
            if not writer.is_over:
                self._inbox.put_now(Cancel(request_id))

    async def lap(self, timeout_s: float) -> Lap:
        """Send a throwaway position round the ring. Raises DeadlinePassed, or what a stage failed with."""
        notes: asyncio.Queue[Note] = asyncio.Queue()
        request = Request(
            request_id="probe",
            prompt_ids=(0,),
            sampling=generation_pb2.Sampling(temperature=0.0),
            new_tokens_max=1,
            end_ids=frozenset(),
            notify=self._notifier(notes),
            arrived_s=self._clock.monotonic_s(),
            probe=True,
        )
        await self._inbox.put(Submit(request))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    note = await notes.get()
                    if isinstance(note, Broke):
                        raise note.error
                    if isinstance(note, Lap):
                        return note
        except TimeoutError:
            raise DeadlinePassed(f"a position did not come round the ring within {timeout_s:g} s") from None
        finally:
            self._inbox.put_now(Cancel("probe"))

    def _encode(self, generation: generation_pb2.Generation) -> list[int]:
        """Prompt ids. Runs on a worker thread: templates and tokenizers are slow on long input. Raises BadRequest."""
        kind = generation.WhichOneof("input")
        if kind == "prompt_ids":
            ids = list(generation.prompt_ids.ids)
        elif self._codec is None:
            raise BadRequest("this model has no tokenizer; send prompt_ids", field="prompt")
        elif kind == "prompt":
            ids = self._codec.prompt_ids(generation.prompt)
        elif kind == "chat":
            chat = generation.chat
            messages = [{"role": message.role, "content": message.content} for message in chat.messages]
            thinking = chat.enable_thinking if chat.HasField("enable_thinking") else None
            ids = self._codec.chat_ids(messages, thinking)
        else:
            raise BadRequest("there is no prompt", field="prompt")
        if not ids:
            raise BadRequest("the prompt is empty", field="prompt")
        if max(ids) >= self._limits.vocabulary_size:
            raise BadRequest(
                f"token {max(ids)} is not in this model's vocabulary of {self._limits.vocabulary_size}",
                field="prompt_ids",
            )
        return ids

    def _request(
        self,
        request_id: str,
        generation: generation_pb2.Generation,
        prompt_ids: list[int],
        notes: "asyncio.Queue[Note]",
    ) -> Request:
        context_left = self._limits.context_tokens - len(prompt_ids)
        asked = generation.new_tokens_max if generation.HasField("new_tokens_max") else None
        new_tokens_max = max(1, min(NEW_TOKENS_DEFAULT, context_left)) if asked is None else max(1, asked)
        sampling = generation_pb2.Sampling()
        if self._codec is not None:
            for name, default in self._codec.default_sampling.items():
                setattr(sampling, name, default)
        sampling.MergeFrom(generation.sampling)
        end_ids = frozenset() if generation.ignore_eos or self._codec is None else self._codec.end_ids
        return Request(
            request_id=request_id,
            prompt_ids=tuple(prompt_ids),
            sampling=sampling,
            new_tokens_max=new_tokens_max,
            end_ids=end_ids,
            notify=self._notifier(notes),
            arrived_s=self._clock.monotonic_s(),
        )

    def _notifier(self, notes: "asyncio.Queue[Note]"):
        """What the engine thread calls; the loop may be closing already."""

        def notify(note: Note) -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(notes.put_nowait, note)

        return notify

    async def _next_notes(self, notes: "asyncio.Queue[Note]") -> list[Note]:
        """The next note and all that came with it. Raises DeadlinePassed."""
        try:
            async with asyncio.timeout(PROGRESS_TIMEOUT_S):
                taken = [await notes.get()]
        except TimeoutError:
            raise DeadlinePassed(f"the ring made no progress for {PROGRESS_TIMEOUT_S:g} s") from None
        while not notes.empty():
            taken.append(notes.get_nowait())
        return taken


class _EventWriter:
    """Notes of the engine to events of the reply: numbering, text, stop strings."""

    def __init__(self, codec: TextCodec | None, stop: list[str], request: Request) -> None:
        self._detokenizer = Detokenizer(codec) if codec is not None else None
        self._stop = StopMatcher(stop) if stop else None
        self._request = request
        self._sequence = 0
        self._completion_tokens = 0
        self._last_life_s = 0.0
        self.is_over = False
        self.wants_conclusion = False  # a stop text came; the engine is asked to finish
        self._is_stopped = False

    def events(self, notes: list[Note]) -> list[_Event]:
        """Events for these notes; several tokens become one batch."""
        self.wants_conclusion = False
        events: list[_Event] = []
        ids = [token for note in notes if isinstance(note, Tokens) for token in note.ids]
        admitted = next((note for note in notes if isinstance(note, Admitted)), None)
        if admitted is not None:
            started = _Event.Started(prompt_tokens=admitted.prompt_tokens, seed=self._request.sampling.seed)
            events.append(self._number(_Event(started=started)))
        ending = next((note for note in notes if isinstance(note, Finished | Broke)), None)
        if (ids and not self._is_stopped) or (not ids and admitted is None and ending is None):
            events.append(self._token_event(ids))
        if isinstance(ending, Broke):
            events.append(self._number(failed_event(ending.error)))
            self.is_over = True
        elif isinstance(ending, Finished):
            events.extend(self._done_events(ending))
            self.is_over = True
        return events

    def _token_event(self, ids: list[int]) -> _Event:
        """A batch of tokens with the text that is certain by now. No ids: a sign of life."""
        text = ""
        for token in ids:
            self._completion_tokens += 1
            piece = self._detokenizer.push(token) if self._detokenizer else ""
            if self._stop is None:
                text += piece
                continue
            emitted, self._is_stopped = self._stop.push(piece)
            text += emitted
            if self._is_stopped:
                self.wants_conclusion = True
                break
        return self._number(_Event(tokens=_Event.TokenBatch(text=text, ids=ids)))

    def _done_events(self, finished: Finished) -> list[_Event]:
        events: list[_Event] = []
        tail = self._tail()
        if tail:
            events.append(self._number(_Event(tokens=_Event.TokenBatch(text=tail))))
        done = _Event.Done(
            finish_reason=generation_pb2.FINISH_REASON_STOP if self._is_stopped else finished.reason,
            prompt_tokens=len(self._request.prompt_ids),
            completion_tokens=self._completion_tokens,
            timing=finished.timing,
        )
        events.append(self._number(_Event(done=done)))
        return events

    def _tail(self) -> str:
        """Text held back until the end."""
        if self._is_stopped or self._detokenizer is None:
            return ""
        tail = self._detokenizer.finish()
        if self._stop is None:
            return tail
        emitted, self._is_stopped = self._stop.push(tail)
        return emitted if self._is_stopped else emitted + self._stop.finish()

    def _number(self, event: _Event) -> _Event:
        self._sequence += 1
        event.sequence = self._sequence
        return event


def failed_event(error: SwarmError) -> _Event:
    """The event that ends a reply with an error."""
    reason = reason_pb2.Reason.Value(f"REASON_{error.why.value}")
    return _Event(failed=_Event.Failed(reason=reason, message=error.message, metadata=error.facts))


def check_lap(lap: Lap, layer_start: int, layer_stop: int, layer_count: int, stage_count: int, vocabulary: int) -> str:
    """Empty when a lap is what the ring must give: every stage once, in order, every layer once, a real token."""
    others: list[ring_pb2.Trace] = list(lap.traces[1:])
    if [trace.stage_index for trace in lap.traces] != list(range(stage_count)):
        return f"the lap passed stages {[trace.stage_index for trace in lap.traces]}, not {stage_count} in order"
    covered = [(layer_start, layer_stop)] + [(trace.layer_start, trace.layer_stop) for trace in others]
    starts = [start for start, _ in covered] + [layer_count]
    if starts[0] != 0 or any(stop != starts[index + 1] for index, (_, stop) in enumerate(covered)):
        return f"the stages hold layers {covered} of {layer_count}: not each exactly once"
    if len(lap.tokens) != 1 or lap.tokens[0] >= vocabulary:
        return f"the last stage drew {list(lap.tokens)}, which is no token of {vocabulary}"
    return ""
