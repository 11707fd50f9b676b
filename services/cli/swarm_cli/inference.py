"""`swarm infer` and one reply of a chat: text to stdout as it comes."""

import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

import typer
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import BadRequest, SwarmError

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.leader import Leader
from swarm_cli.terminal import json_of, print_json

MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Most tokens to generate.")]
TEMPERATURE = 0.0  # at 0.2 the small model that comes along answers in another language every second time
REPLY_TOKENS = 512  # a greedy reply of a small model may run in circles; --max-tokens lets it
TemperatureOption = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="The same seed draws the same.")]


@dataclass
class Reply:
    """A reply so far. done: the closing event, absent until it came."""

    request_id: str = ""
    parts: list[str] = field(default_factory=list)
    done: generation_pb2.GenerationEvent.Done | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)


def infer_command(
    ctx: typer.Context,
    model_id: Annotated[str, typer.Argument(metavar="ID")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The question; - reads it from stdin.")],
    max_tokens: MaxTokensOption = REPLY_TOKENS,
    temperature: TemperatureOption = TEMPERATURE,
    seed: SeedOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Ask one question; the answer streams to stdout."""
    context: CommandContext = ctx.obj
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text:
        raise BadRequest("the prompt is empty; give a text, or - with text on stdin", field="prompt")
    generation = generation_of(max_tokens, temperature, seed)
    if raw:
        generation.prompt = text
    else:
        generation.chat.messages.add(role="user", content=text)
    show: Callable[[str], None] = (lambda part: None) if json or context.as_json else print_part
    reply = context.run(leader, lambda to: follow_reply(to, model_id, generation, show))
    if json or context.as_json:
        print_json({"request_id": reply.request_id, "text": reply.text, "done": json_of(reply.done)})
    else:
        sys.stdout.write("\n")


def generation_of(max_tokens: int | None, temperature: float | None, seed: int | None) -> generation_pb2.Generation:
    """What to generate, still without its input. What is None stays unset: the model's own default holds."""
    sampling = generation_pb2.Sampling(temperature=temperature, seed=seed)
    return generation_pb2.Generation(sampling=sampling, new_tokens_max=max_tokens)


def print_part(part: str) -> None:
    """Text of a reply, at once; never through rich, which would read brackets in it as markup."""
    sys.stdout.write(part)
    sys.stdout.flush()


async def follow_reply(
    leader: Leader,
    model_id: str,
    generation: generation_pb2.Generation,
    show: Callable[[str], None],
    reply: Reply | None = None,
) -> Reply:
    """One reply, each part handed to `show` as it comes; `reply`, when given, holds what came also after a cancel.

    Cancelling ends the session on every stage. Raises SwarmError.
    """
    reply = reply if reply is not None else Reply()
    request = inference_pb2.GenerateRequest(model_id=model_id, generation=generation)
    answers = leader.follow(leader.inference.Generate, request, leader.config.reply_timeout_s)
    async with aclosing(answers):
        async for answer in answers:
            reply.request_id = answer.request_id
            if answer.event.HasField("tokens") and answer.event.tokens.text:
                reply.parts.append(answer.event.tokens.text)
                show(answer.event.tokens.text)
            elif answer.event.HasField("done"):
                reply.done = answer.event.done
                return reply
    raise SwarmError("the reply ended without its last event; see the leader's log")
