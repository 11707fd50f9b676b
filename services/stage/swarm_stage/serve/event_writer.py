"""Notes of the engine to events of a reply: numbering, text, stop texts, the end. No waiting, no I/O."""

from silentswarm.core.v1 import generation_pb2
from silentswarm.core.v1.generation_pb2 import GenerationEvent
from swarm_core.clock import Clock
from swarm_rpc.reasons import failed_event

from swarm_stage.engine.reply import Admitted, Broke, Finished, Note, Request, Tokens, Waiting
from swarm_stage.text.codec import TextCodec
from swarm_stage.text.detokenizer import Detokenizer
from swarm_stage.text.stop_strings import StopMatcher

SIGN_OF_LIFE_S = 5.0  # how often a long prompt says that it moves


class EventWriter:
    """One reply's events. codec None: token ids only."""

    def __init__(self, codec: TextCodec | None, stop: list[str], request: Request, clock: Clock) -> None:
        self._clock = clock
        self._detokenizer = Detokenizer(codec) if codec is not None else None
        self._stop = StopMatcher(stop) if stop else None
        self._request = request
        self._sequence = 0
        self._completion_tokens = 0
        self._detokenize_s = 0.0
        self._last_event_s = clock.monotonic_s()
        self.is_over = False
        self.is_admitted = False
        self.wants_conclusion = False  # a stop text came; the engine is asked to finish
        self._is_stopped = False

    def events(self, notes: list[Note]) -> list[GenerationEvent]:
        """Events for these notes; several tokens become one batch."""
        self.wants_conclusion = False
        events: list[GenerationEvent] = []
        ids = [token for note in notes if isinstance(note, Tokens) for token in note.ids]
        admitted = next((note for note in notes if isinstance(note, Admitted)), None)
        waiting = [note for note in notes if isinstance(note, Waiting)]
        if waiting and admitted is None:
            queued = GenerationEvent.Queued(position=waiting[-1].position, reason=waiting[-1].reason)
            events.append(GenerationEvent(queued=queued))  # soon out of date, so it takes no number
        if admitted is not None:
            self.is_admitted = True
            started = GenerationEvent.Started(prompt_tokens=admitted.prompt_tokens, seed=self._request.sampling.seed)
            events.append(self._number(GenerationEvent(started=started)))
        ending = next((note for note in notes if isinstance(note, Finished | Broke)), None)
        if ids and not self._is_stopped:
            events.append(self._token_event(ids))
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

    def _token_event(self, ids: list[int]) -> GenerationEvent:
        """A batch of tokens with the text that is certain by now; those after a stop text are left out."""
        started_s = self._clock.monotonic_s()
        text, taken = "", []
        for token in ids:
            self._completion_tokens += 1
            taken.append(token)
            # The token that ends a turn is no text, whether or not the tokenizer calls it special.
            is_shown = self._detokenizer is not None and token not in self._request.end_ids
            piece = self._detokenizer.push(token) if is_shown and self._detokenizer else ""
            if self._stop is None or self._completion_tokens <= self._request.new_tokens_min:
                text += piece
                continue
            emitted, self._is_stopped = self._stop.push(piece)
            text += emitted
            if self._is_stopped:
                self.wants_conclusion = True
                break
        self._detokenize_s += self._clock.monotonic_s() - started_s
        return self._number(GenerationEvent(tokens=GenerationEvent.TokenBatch(text=text, ids=taken)))

    def _done_events(self, finished: Finished) -> list[GenerationEvent]:
        events: list[GenerationEvent] = []
        started_s = self._clock.monotonic_s()
        tail = self._tail()
        ended_s = self._clock.monotonic_s()
        if tail:
            events.append(self._number(GenerationEvent(tokens=GenerationEvent.TokenBatch(text=tail))))
        done = GenerationEvent.Done(
            finish_reason=generation_pb2.FINISH_REASON_STOP if self._is_stopped else finished.reason,
            prompt_tokens=len(self._request.prompt_ids),
            completion_tokens=self._completion_tokens,
            timing=finished.timing,
        )
        timing = done.timing
        timing.tokenize_ms = self._request.tokenize_ms
        timing.detokenize_ms = (self._detokenize_s + ended_s - started_s) * 1e3
        timing.total_ms = (ended_s - self._request.arrived_s) * 1e3
        events.append(self._number(GenerationEvent(done=done)))
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

    def _number(self, event: GenerationEvent) -> GenerationEvent:
        self._sequence += 1
        self._last_event_s = self._clock.monotonic_s()
        event.sequence = self._sequence
        return event
