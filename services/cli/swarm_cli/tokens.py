"""`swarm tokens`: who may use this swarm. A secret is printed once, alone on stdout, and kept nowhere."""

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from silentswarm.leader.v1 import tokens_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.durations import duration_text, moment_text, read_duration
from swarm_cli.leader import Leader
from swarm_cli.terminal import count_text, err, json_of, out, print_json, table_of

# Columns that a terminal needs to show what a token used beside who it is.
WIDE = 130

app = typer.Typer(help="List, create or revoke the tokens of people and programs.", no_args_is_help=False)


class Scope(StrEnum):
    """What a token may do; each includes those before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


ExpiresOption = Annotated[
    str | None, typer.Option("--expires", metavar="SPAN", help="How long it holds: 12h, 30d.", show_default=False)
]


@app.callback(invoke_without_command=True)
def tokens(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """List, create or revoke the tokens of people and programs."""
    context: CommandContext = ctx.obj
    if ctx.invoked_subcommand is not None:
        context.choose_leader(leader)
        return
    _list(context, leader, json)


@app.command("list")
def list_tokens(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """Every token, newest first, with what it used."""
    _list(ctx.obj, leader, json)


@app.command("create")
def create_token(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="What it is for: a person, a program.")],
    scopes: Annotated[
        list[Scope] | None,
        typer.Option("--scope", help="read looks; operate also loads and chats; admin may everything. Repeatable."),
    ] = None,
    expires: ExpiresOption = None,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token. Prints its secret, this once; the default scope is operate. Without --expires it holds for ever."""
    context: CommandContext = ctx.obj
    request = tokens_pb2.CreateTokenRequest(
        label=label,
        scopes=[scope.value for scope in scopes or [Scope.OPERATE]],
        expires_in_s=read_duration(expires, "expires") if expires else 0,
    )

    async def create(to: Leader) -> tuple[bool, tokens_pb2.CreateTokenResponse]:
        me = await to.ask(to.tokens.GetSelf, tokens_pb2.GetSelfRequest())
        return me.enforced, await to.ask(to.tokens.CreateToken, request)

    was_locked, made = context.run(leader, create)
    if json or context.as_json:
        print_json(json_of(made))
    else:
        out().print(made.secret, markup=False, soft_wrap=True)
        err().print(f"{made.token.token_id}: shown this once. Programs take it as their API key.", markup=False)
    if not was_locked:
        err().print("From now on this swarm asks everyone for a token. `swarm tokens revoke` takes that back.")


@app.command("revoke")
def revoke_token(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `swarm tokens list` shows it.")],
    leader: LeaderOption = None,
) -> None:
    """End a token at once, and every reply of it that runs."""
    context: CommandContext = ctx.obj
    request = tokens_pb2.RevokeTokenRequest(token_id=token_id)
    context.run(leader, lambda to: to.ask(to.tokens.RevokeToken, request))
    out().print(f"{token_id} is revoked", markup=False)


@app.command("self")
def show_self(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """Who you are to this leader."""
    context: CommandContext = ctx.obj
    me = context.run(leader, lambda to: to.ask(to.tokens.GetSelf, tokens_pb2.GetSelfRequest()))
    if json or context.as_json:
        print_json(json_of(me))
    elif not me.enforced:
        out().print("This leader asks nobody for a token: whoever reaches it may do everything.")
    else:
        out().print(tokens_table([me.token], out().width))


def _list(context: CommandContext, leader: str | None, json: bool) -> None:
    answer = context.run(leader, lambda to: to.ask(to.tokens.ListTokens, tokens_pb2.ListTokensRequest()))
    if json or context.as_json:
        print_json(json_of(answer))
        return
    if answer.tokens:
        out().print(tokens_table(answer.tokens, out().width))
    if not answer.enforced:
        out().print(
            "No token is asked for: whoever reaches this leader may do everything. The first token ends that: "
            "`swarm tokens create LABEL --scope admin`"
        )


def tokens_table(tokens: Iterable[tokens_pb2.ApiToken], width: int) -> RenderableType:
    """One line per token. width: of the terminal; a narrow one leaves room for ids by fewer columns."""
    is_wide = width >= WIDE
    used = ("CREATED", "LAST USED", "REQUESTS", "PROMPT", "GENERATED") if is_wide else ("LAST USED",)
    table = table_of("TOKEN", "LABEL", "SCOPES", "STATE", *used, whole="TOKEN")
    for token in tokens:
        last_used = moment_text(token.last_used_s if token.HasField("last_used_s") else None)
        usage = (
            str(token.usage.requests),
            count_text(token.usage.prompt_tokens),
            count_text(token.usage.completion_tokens),
        )
        table.add_row(
            escape(token.token_id),
            escape(token.label),
            ",".join(token.scopes) if is_wide else _highest(token.scopes),
            state_text(token, time.time()),
            *((moment_text(token.created_s), last_used, *usage) if is_wide else (last_used,)),
        )
    return table


def _highest(scopes: Iterable[str]) -> str:
    """The one that includes the others."""
    order = [scope.value for scope in Scope]
    return max(scopes, key=lambda scope: order.index(scope) if scope in order else len(order), default="")


def state_text(token: tokens_pb2.ApiToken, now_s: float) -> str:
    """Whether it opens anything, and for how long."""
    if token.HasField("revoked_s"):
        return "revoked"
    if not token.HasField("expires_s"):
        return "valid"
    left_s = token.expires_s - now_s
    return f"expires in {duration_text(left_s)}" if left_s > 0 else "expired"
