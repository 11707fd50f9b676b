"""A chat reply as one document."""

from swarm_gateway.openai.chat_completions.documents import completion
from swarm_gateway.openai.replies.asked import Batch, Document, Done, ReplyNames
from swarm_gateway.openai.replies.calls import Calls, call_id
from swarm_gateway.openai.replies.counts import finish_reason
from swarm_gateway.openai.replies.frames import body_of
from swarm_gateway.openai.replies.logprobs import Likelihood, content_logprobs
from swarm_gateway.problems import Problem


class ChatWhole:
    """The wording of one reply that is not streamed."""

    def __init__(self, names: ReplyNames, choice_count: int, with_logprobs: bool) -> None:
        self._names = names
        self._with_logprobs = with_logprobs
        self._choices = [_Choice() for _ in range(choice_count)]

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """Kept for the end."""
        self._choices[choice].take(batch, self._with_logprobs)
        return b""

    def done(self, choice: int, done: Done) -> bytes:
        """Likewise."""
        self._choices[choice].ended = done
        return b""

    def end(self) -> bytes:
        """The document."""
        choices = [self._choice(at, choice) for at, choice in enumerate(self._choices)]
        return body_of(completion(self._names, choices, [choice.ended for choice in self._choices]))

    def failure(self, problem: Problem) -> bytes:
        """Nothing: what fails is told by its status."""
        return b""

    def _choice(self, at: int, choice: "_Choice") -> Document:
        return {
            "index": at,
            "message": choice.message(self._names.completion_id, at),
            "logprobs": content_logprobs(choice.likelihoods) if self._with_logprobs else None,
            "finish_reason": finish_reason(choice.ended),
        }


class _Choice:
    """What came of one choice."""

    def __init__(self) -> None:
        self.ended = Done()
        self.likelihoods: list[Likelihood] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls = Calls()

    def take(self, batch: Batch, with_logprobs: bool) -> None:
        """More of it."""
        self._texts.append(batch.text)
        self._thoughts.append(batch.reasoning)
        self._calls.take(batch)
        if with_logprobs:
            self.likelihoods.extend(batch.logprobs)

    def message(self, completion_id: str, at: int) -> Document:
        """The message. content is null where only tools are called."""
        text, thoughts = "".join(self._texts), "".join(self._thoughts)
        calls = [
            {
                "id": call_id(completion_id, at, index),
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for index, call in sorted(self._calls.by_index.items())
        ]
        message: Document = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if thoughts:
            message["reasoning_content"] = thoughts
        if calls:
            message["tool_calls"] = calls
        return message
