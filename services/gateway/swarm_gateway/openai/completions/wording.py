"""Replies of plain completions: as one document, and as a stream of pieces of it."""

from collections.abc import Sequence
from typing import Any

from swarm_gateway.openai.completions.request import CompletionRequest
from swarm_gateway.openai.replies.asked import Batch, Document, Done, ReplyNames
from swarm_gateway.openai.replies.counts import finish_reason, swarm_extra, usage
from swarm_gateway.openai.replies.frames import DONE, TextFrames, body_of, event_of
from swarm_gateway.openai.replies.logprobs import Likelihood, legacy_logprobs
from swarm_gateway.problems import Problem, error_document


class CompletionWhole:
    """The wording of one reply that is not streamed."""

    def __init__(self, names: ReplyNames, request: CompletionRequest) -> None:
        self._names = names
        self._per_prompt = request.choice_count
        self._with_logprobs = request.logprobs is not None
        count = len(request.prompt) * request.choice_count
        self._texts = [[echoed(request, choice)] for choice in range(count)]
        self._likelihoods: list[list[Likelihood]] = [[] for _ in range(count)]
        self._dones = [Done() for _ in range(count)]

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """Kept for the end."""
        self._texts[choice].append(batch.text)
        if self._with_logprobs:
            self._likelihoods[choice].extend(batch.logprobs)
        return b""

    def done(self, choice: int, done: Done) -> bytes:
        """Likewise."""
        self._dones[choice] = done
        return b""

    def end(self) -> bytes:
        """The document."""
        choices = [
            choice_of(
                at,
                "".join(texts),
                legacy_logprobs(self._likelihoods[at], 0) if self._with_logprobs else None,
                finish_reason(self._dones[at]),
            )
            for at, texts in enumerate(self._texts)
        ]
        document = {**head(self._names), "choices": choices, "usage": usage(self._dones, self._per_prompt)}
        return body_of(document | swarm_extra(self._dones))

    def failure(self, problem: Problem) -> bytes:
        """Nothing: what fails is told by its status."""
        return b""


class CompletionStream:
    """The wording of one streamed reply."""

    def __init__(self, names: ReplyNames, request: CompletionRequest) -> None:
        self._names = names
        self._request = request
        self._with_usage = request.include_usage
        self._with_logprobs = request.logprobs is not None
        self._frames: dict[int, TextFrames] = {}
        self._offsets: dict[int, int] = {}
        self._dones: dict[int, Done] = {}

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """More text, after the prompt where that is wanted."""
        if self._with_logprobs and batch.logprobs:
            offset = self._offsets.get(choice, 0)
            self._offsets[choice] = offset + len(batch.text)
            told = choice_of(choice, batch.text, legacy_logprobs(batch.logprobs, offset), None)
            return event_of(self._chunk([told]))
        frames = self._frames.get(choice)
        if frames is None:
            empty = self._chunk([choice_of(choice, "", None, None)])
            frames = self._frames[choice] = TextFrames(empty, "text")
            text = echoed(self._request, choice) + batch.text
        else:
            text = batch.text
        return frames.frame(text) if text else b""

    def done(self, choice: int, done: Done) -> bytes:
        """Why it ended."""
        self._dones[choice] = done
        prompt = echoed(self._request, choice) if choice not in self._frames else ""
        last = self._chunk([choice_of(choice, prompt, None, finish_reason(done))])
        return event_of(last | swarm_extra([done]))

    def end(self) -> bytes:
        """The counts where they are wanted, and the end."""
        if not self._with_usage:
            return DONE
        dones = [self._dones[choice] for choice in sorted(self._dones)]
        counts = usage(dones, self._request.choice_count)
        return event_of({**head(self._names), "choices": [], "usage": counts}) + DONE

    def failure(self, problem: Problem) -> bytes:
        """An error event, without [DONE]."""
        return event_of(error_document(problem))

    def _chunk(self, choices: Sequence[Document]) -> Document:
        return {**head(self._names), "choices": choices, **({"usage": None} if self._with_usage else {})}


def head(names: ReplyNames) -> Document:
    """What every document of a reply begins with."""
    return {"id": names.completion_id, "object": "text_completion", "created": names.created, "model": names.model}


def choice_of(choice: int, text: str, logprobs: Any, finish: str | None) -> Document:
    """One choice, or a piece of it."""
    return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish}


def echoed(request: CompletionRequest, choice: int) -> str:
    """What stands before the text of a choice: its prompt, where that is wanted."""
    prompt = request.prompt[choice // request.choice_count]
    return prompt if request.echo and isinstance(prompt, str) else ""
