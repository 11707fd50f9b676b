"""What an endpoint hands over: generations to ask for, and a way to word what comes. Does nothing with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import SwarmError

from swarm_gateway.problems import HttpProblem, Problem, problem_in

Event: TypeAlias = generation_pb2.GenerationEvent
Batch: TypeAlias = generation_pb2.GenerationEvent.TokenBatch
CallDelta: TypeAlias = generation_pb2.GenerationEvent.ToolCallDelta
Done: TypeAlias = generation_pb2.GenerationEvent.Done
Document = dict[str, Any]
# The swarm's names of what a request may have got wrong -> OpenAI's.
_PARAMS = {
    "new_tokens_max": "max_tokens",
    "new_tokens_min": "min_tokens",
    "prompt_ids": "prompt",
    "model_id": "model",
    "constraint": "response_format",
}


@dataclass(frozen=True)
class ReplyNames:
    """What every document of one reply repeats. created: Unix seconds."""

    completion_id: str
    model: str
    created: int


class Wording(Protocol):
    """How one reply is told, in bytes for its reader; each call returns what there is to send now, maybe nothing.

    Called in the order of events; `done` once for each choice, then `end` once. What is not streamed returns its whole
    document at the end and nothing before.
    """

    def tokens(self, choice: int, batch: Batch) -> bytes:
        """More of a choice."""

    def done(self, choice: int, done: Done) -> bytes:
        """A choice is complete."""

    def end(self) -> bytes:
        """All are."""

    def failure(self, problem: Problem) -> bytes:
        """It broke off, after something of it was sent; the last words of a stream."""


@dataclass(frozen=True)
class Asked:
    """A checked request.

    generations: one for each choice, in order. params: further names of the swarm's and what the endpoint calls them.
    """

    model: str
    is_streamed: bool
    id_prefix: str
    generations: tuple[generation_pb2.Generation, ...]
    word: Callable[[ReplyNames], Wording]
    params: Mapping[str, str]


def in_words_of(error: SwarmError | HttpProblem, params: Mapping[str, str]) -> SwarmError | HttpProblem:
    """The failure, its `param` by the name the endpoint has for it. params: names of the swarm's -> the endpoint's.

    What stands behind such a name is the swarm's as well, and is left out.
    """
    problem = problem_in(error)
    for name, told in {**_PARAMS, **params}.items():
        if problem.param is not None and (problem.param == name or problem.param.startswith((f"{name}.", f"{name}["))):
            return HttpProblem(replace(problem, param=told))
    return error
