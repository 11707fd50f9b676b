"""`swarm infer` and one reply of a chat: text to stdout as it comes."""

import sys
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import BadRequest

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.lasting import reply_events
from swarm_cli.leader import Leader
from swarm_cli.progress import REPEAT_S, noticing
from swarm_cli.reply_view import Took, standing_text, timing_view
from swarm_cli.terminal import err, json_of, print_json, write_text

MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Most tokens to generate.")]
TEMPERATURE = 0.0  # at 0.2 the small model that comes along answers in another language every second time
REPLY_TOKENS = 512  # a greedy reply of a small model may run in circles; --max-tokens lets it
TemperatureOption = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="The same seed draws the same.")]
TimingOption = Annotated[bool, typer.Option("--timing", help="Tell on stderr where the time of a reply went.")]
QUIET_S = 2.0  # a reply that begins sooner needs no words about its beginning


@dataclass
class Reply:
    """A reply so far. done: the closing event, absent until it came. took: on the clock of the one who asked."""

    request_id: str = ""
    parts: list[str] = field(default_factory=list)
    reasoning_parts: list[str] = field(default_factory=list)
    done: generation_pb2.GenerationEvent.Done | None = None
    took: Took = field(default_factory=Took)

    @property
    def text(self) -> str:
        """All of its content."""
        return "".join(self.parts)

    @property
    def reasoning(self) -> str:
        """What the model reasoned before it answered."""
        return "".join(self.reasoning_parts)


def infer_command(
    ctx: typer.Context,
    model_id: Annotated[str, typer.Argument(metavar="ID")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The question; - reads it from stdin.")],
    max_tokens: MaxTokensOption = REPLY_TOKENS,
    temperature: TemperatureOption = TEMPERATURE,
    seed: SeedOption = None,
    min_tokens: Annotated[
        int, typer.Option("--min-tokens", min=0, help="The model does not end its turn before so many tokens.")
    ] = 0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on past the end of the model's turn, to --max-tokens.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    timing: TimingOption = False,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Ask one question. The answer streams to stdout, without what the model reasons before it."""
    context: CommandContext = ctx.obj
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text:
        raise BadRequest("the prompt is empty; give a text, or - with text on stdin", field="prompt")
    if max_tokens is not None and min_tokens > max_tokens:
        words = f"--min-tokens {min_tokens} is more than --max-tokens {max_tokens}; raise the one or lower the other"
        raise BadRequest(words, field="min_tokens")
    generation = generation_of(max_tokens, temperature, seed)
    generation.new_tokens_min, generation.ignore_eos = min_tokens, ignore_eos
    if raw:
        generation.prompt = text
    else:
        generation.chat.messages.add(role="user", content=text)
    as_json = json or context.as_json
    show: Callable[[str], None] = (lambda part: None) if as_json else write_text
    reply = Reply()
    try:
        context.run(leader, lambda to: follow_reply(to, model_id, generation, show, reply))
    finally:
        if reply.parts and not as_json:
            write_text("\n")  # also before the words of a failure in the middle
    if as_json:
        reasoning = {"reasoning": reply.reasoning} if reply.reasoning else {}
        print_json({"request_id": reply.request_id, "text": reply.text, **reasoning, "done": json_of(reply.done)})
    elif not reply.parts:
        write_text("\n")
    if timing:
        show_timing(reply)


def generation_of(max_tokens: int | None, temperature: float | None, seed: int | None) -> generation_pb2.Generation:
    """What to generate, still without its input. What is None stays unset: the model's own default holds."""
    sampling = generation_pb2.Sampling(temperature=temperature, seed=seed)
    return generation_pb2.Generation(sampling=sampling, new_tokens_max=max_tokens)


def show_timing(reply: Reply) -> None:
    """Where the time of a whole reply went, on stderr: stdout is the reply alone."""
    if reply.done is not None:
        err().print(timing_view(reply.done, reply.took), markup=False)


async def follow_reply(
    leader: Leader,
    model_id: str,
    generation: generation_pb2.Generation,
    show: Callable[[str], None],
    reply: Reply | None = None,
    show_aside: Callable[[generation_pb2.GenerationEvent.TokenBatch], None] = lambda batch: None,
) -> Reply:
    """One reply, each part handed to `show` as it comes; `reply`, when given, holds what came also after a cancel.

    show_aside: is handed batches with reasoning or calls of tools in them, before `show` gets their content.

    While nothing comes stderr says what is being waited for; a leader that dies costs a pause. Cancelling leaves the
    queue, or ends the session on every stage. Raises SwarmError.
    """
    reply = reply if reply is not None else Reply()
    asked_s = time.monotonic()
    request = inference_pb2.GenerateRequest(model_id=model_id, generation=generation, request_id=uuid.uuid4().hex)
    async with noticing() as notice, aclosing(reply_events(leader, request, notice.change)) as answers:
        notice.begin("waiting for the leader to answer", QUIET_S, REPEAT_S)
        async for answer in answers:
            reply.request_id = answer.request_id
            event = answer.event
            match event.WhichOneof("event"):
                case "queued":
                    notice.change(standing_text(event.queued))
                case "started":
                    reply.took = Took(started_ms=(time.monotonic() - asked_s) * 1e3)
                    notice.begin(f"computing the prompt, {event.started.prompt_tokens:,} tokens", QUIET_S, REPEAT_S)
                case "tokens":
                    notice.clear()
                    if event.tokens.reasoning or event.tokens.tool_calls:
                        reply.reasoning_parts.append(event.tokens.reasoning)
                        show_aside(event.tokens)
                    if event.tokens.text:
                        reply.parts.append(event.tokens.text)
                        show(event.tokens.text)
                    notice.is_behind_text = sys.stdout.isatty() and not event.tokens.text.endswith("\n")
                case "done":
                    reply.done = event.done
                    reply.took = replace(reply.took, total_ms=(time.monotonic() - asked_s) * 1e3)
    return reply
