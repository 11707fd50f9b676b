"""Notes of the engine to events of a reply: numbering, parts of the text, likelihoods, the end. No waiting, no I/O."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import FinishReason, GenerationEvent, ReplyResume
from swarm_core.clock import Clock
from swarm_rpc.reasons import failed_event

from swarm_stage.engine.reply import (
    Admitted,
    Broke,
    Finished,
    Likelihood,
    Note,
    Request,
    Tokens,
    Waiting,
    reason_to_end,
)
from swarm_stage.text.reply_parser import Parts
from swarm_stage.text.reply_reader import ReplyReader
from swarm_stage.text.reply_shape import PLAIN, ReplyShape

if TYPE_CHECKING:  # it imports torch, which waits until the socket answers
    from swarm_stage.text.codec import TextCodec

SIGN_OF_LIFE_S = 5.0  # how often a long prompt says that it moves


class EventWriter:
    """One reply's events. codec None: token ids only."""

    def __init__(
        self,
        codec: "TextCodec | None",
        stop: Sequence[str],
        request: Request,
        clock: Clock,
        shape: ReplyShape = PLAIN,
    ) -> None:
        """Raises BadRequest for an empty stop text."""
        self._clock = clock
        self._codec = codec
        self._reader = ReplyReader(codec, shape, stop, request.end_ids) if codec is not None else None
        self._request = request
        self._sequence = 0
        self._completion_tokens = 0
        self._detokenize_s = 0.0
        self._last_event_s = clock.monotonic_s()
        self.is_over = False
        self.is_admitted = False
        self.wants_conclusion = False  # a stop text came; the engine is asked to finish
        self._has_text = False
        self._tells_start = True
        self._tells_rest = True

    def restore(self, resume: ReplyResume) -> FinishReason:
        """Stand where an earlier attempt broke off: read its tokens, tell nothing of them, number on from there.

        Why the reply is over with them; UNSPECIFIED when it goes on.
        """
        self._sequence = resume.sequence
        self._tells_start, self._tells_rest = resume.sequence == 0, not resume.is_flushed
        for token in resume.ids:
            self._completion_tokens += 1
            was_content = self._is_content
            self._read(token)
            if was_content and self._is_content:
                self._has_text = self._has_text or self._is_text(token)
        if self._is_stopped:
            return generation_pb2.FINISH_REASON_STOP
        return reason_to_end(self._request, resume.ids)

    def events(self, notes: list[Note]) -> list[GenerationEvent]:
        """Events for these notes; several tokens become one batch."""
        self.wants_conclusion = False
        events: list[GenerationEvent] = []
        tokens = [note for note in notes if isinstance(note, Tokens) and note.ids]
        admitted = next((note for note in notes if isinstance(note, Admitted)), None)
        waiting = [note for note in notes if isinstance(note, Waiting)]
        if waiting and admitted is None:
            queued = GenerationEvent.Queued(position=waiting[-1].position, reason=waiting[-1].reason)
            events.append(GenerationEvent(queued=queued))  # soon out of date, so it takes no number
        if admitted is not None:
            self.is_admitted = True
            started = GenerationEvent.Started(prompt_tokens=admitted.prompt_tokens, seed=self._request.sampling.seed)
            if self._tells_start:
                events.append(self._number(GenerationEvent(started=started)))
        ending = next((note for note in notes if isinstance(note, Finished | Broke)), None)
        if tokens and not self._is_stopped:
            events.extend(self._token_events(tokens))
        elif not events and ending is None and self._is_silent():
            events.append(self._number(GenerationEvent(tokens=GenerationEvent.TokenBatch())))
        if isinstance(ending, Broke):
            events.append(self._number(failed_event(ending.error, 0)))
            self.is_over = True
        elif isinstance(ending, Finished):
            events.extend(self._done_events(ending))
            self.is_over = True
        return events

    def _is_silent(self) -> bool:
        """Nothing was said for a while; a prompt piece that came round is worth an empty batch then."""
        return self._clock.monotonic_s() - self._last_event_s >= SIGN_OF_LIFE_S

    @property
    def _is_content(self) -> bool:
        return self._reader is None or self._reader.is_content

    @property
    def _is_stopped(self) -> bool:
        return self._reader is not None and self._reader.is_stopped

    def _token_events(self, notes: Sequence[Tokens]) -> list[GenerationEvent]:
        """Tokens with the text that is certain by now; those after a stop text are left out.

        One batch, or where likelihoods are told several: content has one for each of its tokens, the rest has none.
        """
        started_s = self._clock.monotonic_s()
        batches = [GenerationEvent.TokenBatch()]
        for token, likelihood in _with_likelihoods(notes):
            self._completion_tokens += 1
            was_content = self._is_content
            parts = self._read(token)
            is_told = likelihood is not None and was_content and self._is_content
            if batches[-1].ids and is_told != bool(batches[-1].logprobs):
                batches.append(GenerationEvent.TokenBatch())
            batch = batches[-1]
            if likelihood is not None and is_told:
                batch.logprobs.append(self._logprob(token, likelihood))
            batch.ids.append(token)
            _add_parts(batch, parts)
            if self._is_stopped:
                self.wants_conclusion = True
                break
        self._detokenize_s += self._clock.monotonic_s() - started_s
        return [self._number(GenerationEvent(tokens=batch)) for batch in batches]

    def _read(self, token: int) -> Parts:
        if self._reader is None:
            return Parts()
        return self._reader.push(token, self._completion_tokens > self._request.new_tokens_min)

    def _logprob(self, token: int, likelihood: Likelihood) -> GenerationEvent.TokenLogprob:
        """A token's likelihood, with what it adds to the text."""
        told = GenerationEvent.TokenLogprob(logprob=likelihood.logprob)
        codec = self._codec
        if codec is not None and self._is_text(token):
            told.token = codec.token_bytes[token] if token < len(codec.token_bytes) else b""
            if not self._has_text and told.token.startswith(b" ") and not codec.decode([token]).startswith(" "):
                told.token = told.token[1:]  # some tokenizers drop the space that a text begins with
            self._has_text = True
        for each, logprob in likelihood.top:
            name = codec.token_bytes[each] if codec is not None and each < len(codec.token_bytes) else b""
            told.top.add(id=each, logprob=logprob, token=name)
        return told

    def _is_text(self, token: int) -> bool:
        codec = self._codec
        return codec is not None and token not in codec.special_ids and token not in self._request.end_ids

    def _done_events(self, finished: Finished) -> list[GenerationEvent]:
        events: list[GenerationEvent] = []
        started_s = self._clock.monotonic_s()
        batch = GenerationEvent.TokenBatch()
        if self._reader is not None:
            _add_parts(batch, self._reader.finish())
        ended_s = self._clock.monotonic_s()
        if batch.ByteSize() and self._tells_rest:
            events.append(self._number(GenerationEvent(tokens=batch)))
        done = GenerationEvent.Done(
            finish_reason=self._finish_reason(finished.reason),
            prompt_tokens=len(self._request.prompt_ids),
            completion_tokens=self._completion_tokens,
            timing=finished.timing,
            reasoning_tokens=self._reader.reasoning_tokens if self._reader is not None else 0,
        )
        timing = done.timing
        timing.tokenize_ms = self._request.tokenize_ms
        timing.detokenize_ms = (self._detokenize_s + ended_s - started_s) * 1e3
        timing.total_ms = (ended_s - self._request.arrived_s) * 1e3
        events.append(self._number(GenerationEvent(done=done)))
        return events

    def _finish_reason(self, reason: generation_pb2.FinishReason) -> generation_pb2.FinishReason:
        """Why the reply ended, as its caller understands it: after calls it is for their answers."""
        if self._is_stopped:
            reason = generation_pb2.FINISH_REASON_STOP
        if reason == generation_pb2.FINISH_REASON_STOP and self._reader is not None and self._reader.calls:
            return generation_pb2.FINISH_REASON_TOOL_CALLS
        return reason

    def _number(self, event: GenerationEvent) -> GenerationEvent:
        self._sequence += 1
        self._last_event_s = self._clock.monotonic_s()
        event.sequence = self._sequence
        return event


def _with_likelihoods(notes: Sequence[Tokens]) -> Iterator[tuple[int, Likelihood | None]]:
    for note in notes:
        for place, token in enumerate(note.ids):
            yield token, note.likelihoods[place] if note.likelihoods else None


def _add_parts(batch: GenerationEvent.TokenBatch, parts: Parts) -> None:
    batch.text += parts.content
    batch.reasoning += parts.reasoning
    for call in parts.calls:
        if not call.name and batch.tool_calls and batch.tool_calls[-1].index == call.index:
            batch.tool_calls[-1].arguments += call.arguments
        else:
            batch.tool_calls.add(index=call.index, name=call.name, arguments=call.arguments)
