"""`swarm chat`: a small terminal chat over the leader. Keeps the conversation, nothing else."""

import asyncio
import signal
import sys
from typing import Annotated

import typer
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import models_pb2
from swarm_core.errors import SwarmError

from swarm_cli.config import CliConfig
from swarm_cli.context import CommandContext, LeaderOption
from swarm_cli.failures import words_of
from swarm_cli.inference import (
    REPLY_TOKENS,
    TEMPERATURE,
    MaxTokensOption,
    Reply,
    SeedOption,
    TemperatureOption,
    TimingOption,
    follow_reply,
    generation_of,
    show_timing,
)
from swarm_cli.interrupts import ended_by_ctrl_c
from swarm_cli.leader import Leader
from swarm_cli.reply_view import Aside
from swarm_cli.terminal import err, write_text

QUIT = {"/quit", "/exit"}
PROMPT = "you> "


def chat_command(
    ctx: typer.Context,
    model_id: Annotated[str, typer.Argument(metavar="ID")],
    max_tokens: MaxTokensOption = REPLY_TOKENS,
    temperature: TemperatureOption = TEMPERATURE,
    seed: SeedOption = None,
    system: Annotated[str, typer.Option("--system", help="A system message to begin with.")] = "",
    timing: TimingOption = False,
    leader: LeaderOption = None,
) -> None:
    """Chat in the terminal. Ctrl-C stops a reply; at the prompt Ctrl-C, Ctrl-D or /quit ends."""
    context: CommandContext = ctx.obj
    settings = generation_of(max_tokens, temperature, seed)
    if system:
        settings.chat.messages.add(role="system", content=system)
    signal.signal(signal.SIGTERM, _end_on_signal)  # unwinds, so that a line editor gives the terminal back
    if sys.stdin.isatty():
        import readline  # noqa: F401  # line editing and history of input(), for this command alone
    config = context.choose_leader(leader)
    with asyncio.Runner() as runner:
        connection = runner.run(_connect(config))
        try:
            # An unknown model or a leader that is not there is told before the first question.
            request = models_pb2.GetModelRequest(model_id=model_id)
            runner.run(connection.ask(connection.models.GetModel, request))
            talk(runner, connection, model_id, settings, timing)
        finally:
            runner.run(connection.close())


def talk(
    runner: asyncio.Runner, leader: Leader, model_id: str, conversation: generation_pb2.Generation, timing: bool
) -> None:
    """Ask and answer until the end of input, /quit, or Ctrl-C at the prompt. timing: tell it of each reply."""
    if sys.stdin.isatty():
        keys = "Ctrl-C stops a reply; at the prompt Ctrl-C, Ctrl-D or /quit ends."
        err().print(f"{model_id}: {keys}", markup=False)
    while (line := read_line()) is not None and line not in QUIT:
        if not line:
            continue
        conversation.chat.messages.add(role="user", content=line)
        reply = answer_once(runner, leader, model_id, conversation)
        if timing:
            show_timing(reply)
        if reply.text:
            conversation.chat.messages.add(role="assistant", content=reply.text, reasoning=reply.reasoning)
        else:
            del conversation.chat.messages[-1]  # a question without an answer would put two user turns in a row


def answer_once(
    runner: asyncio.Runner, leader: Leader, model_id: str, conversation: generation_pb2.Generation
) -> Reply:
    """One reply on stdout. A failure is told and the chat goes on; Ctrl-C keeps what came so far."""
    reply, aside = Reply(), Aside(print_aside)

    def show(part: str) -> None:
        aside.end()
        write_text(part)

    try:
        try:
            runner.run(ended_by_ctrl_c(follow_reply(leader, model_id, conversation, show, reply, aside.show)))
        finally:
            aside.end()
    except KeyboardInterrupt:
        write_text(" [stopped]" if reply.parts else "[stopped]")
    except SwarmError as error:
        write_text("\n")
        err().print(f"error: {words_of(error)}", style="red", markup=False)
        return reply
    write_text("\n")
    return reply


def print_aside(part: str) -> None:
    """Reasoning and calls, dimmed and on stderr: stdout is what the model answers."""
    err().print(part, end="", style="dim", markup=False, highlight=False, soft_wrap=True)


def read_line() -> str | None:
    """The next line, stripped; None at the end of input or at Ctrl-C."""
    try:
        return input(PROMPT if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            sys.stdout.write("\n")
        return None


async def _connect(config: CliConfig) -> Leader:
    """A connection made inside the loop it will live in."""
    return await Leader(config).connect()


def _end_on_signal(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
