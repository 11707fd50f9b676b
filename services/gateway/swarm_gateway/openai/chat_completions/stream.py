"""A chat reply as a stream of chunks. The first chunk of a choice says who speaks, its last why it ended."""

from swarm_gateway.openai.chat_completions.documents import chunk, last_chunk, usage_chunk
from swarm_gateway.openai.replies.asked import Batch, CallDelta, Document, Done, ReplyNames
from swarm_gateway.openai.replies.calls import call_id
from swarm_gateway.openai.replies.frames import DONE, TextFrames, event_of
from swarm_gateway.openai.replies.logprobs import content_logprobs
from swarm_gateway.problems import Problem, error_document


class ChatStream:
    """The wording of one streamed reply."""

    def __init__(self, names: ReplyNames, with_usage: bool, with_logprobs: bool) -> None:
        self._names = names
        self._with_usage = with_usage
        self._with_logprobs = with_logprobs
        self._choices: dict[int, _Choice] = {}
        self._dones: dict[int, Done] = {}

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """Role, reasoning, text, calls: what there is."""
        frames, told = self._opened(choice)
        if batch.reasoning:
            frames += told.reasoning.frame(batch.reasoning)
        if self._with_logprobs and batch.logprobs:
            # With the text they belong to; also alone, while a character is incomplete or calls are written.
            frames += self._chunk(choice, {"content": batch.text}, content_logprobs(batch.logprobs))
        elif batch.text:
            frames += told.content.frame(batch.text)
        for delta in batch.tool_calls:
            frames += self._chunk(choice, {"tool_calls": [self._call(choice, told, delta)]})
        return frames

    def done(self, choice: int, done: Done) -> bytes:
        """Why it ended."""
        self._dones[choice] = done
        return self._opened(choice)[0] + event_of(last_chunk(self._names, choice, done, self._with_usage))

    def end(self) -> bytes:
        """The counts where they are wanted, and the end."""
        if not self._with_usage:
            return DONE
        dones = [self._dones[choice] for choice in sorted(self._dones)]
        return event_of(usage_chunk(self._names, dones)) + DONE

    def failure(self, problem: Problem) -> bytes:
        """An error event, without [DONE], which would mean success."""
        return event_of(error_document(problem))

    def _opened(self, choice: int) -> tuple[bytes, "_Choice"]:
        """The role, before anything else of a choice."""
        told = self._choices.get(choice)
        if told is not None:
            return b"", told
        told = self._choices[choice] = _Choice(self._names, choice, self._with_usage)
        return self._chunk(choice, {"role": "assistant", "content": ""}), told

    def _chunk(self, choice: int, delta: Document, logprobs: Document | None = None) -> bytes:
        return event_of(chunk(self._names, choice, delta, self._with_usage, logprobs))

    def _call(self, choice: int, told: "_Choice", delta: CallDelta) -> Document:
        """The index always; id, type and name only once: clients join what is repeated."""
        function: Document = {"arguments": delta.arguments}
        if delta.index in told.calls:
            return {"index": delta.index, "function": function}
        told.calls.add(delta.index)
        made = call_id(self._names.completion_id, choice, delta.index)
        return {"index": delta.index, "id": made, "type": "function", "function": {"name": delta.name, **function}}


class _Choice:
    """What is known of a choice, and its frames."""

    def __init__(self, names: ReplyNames, choice: int, with_usage: bool) -> None:
        self.calls: set[int] = set()
        self.content = TextFrames(chunk(names, choice, {"content": ""}, with_usage), "content")
        self.reasoning = TextFrames(chunk(names, choice, {"reasoning_content": ""}, with_usage), "reasoning_content")
