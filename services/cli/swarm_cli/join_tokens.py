"""`swarm join-token`: which machines may join. A secret is printed once, alone on stdout, and kept nowhere."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from silentswarm.leader.v1 import tokens_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.durations import duration_text, moment_text, read_duration
from swarm_cli.terminal import err, json_of, out, print_json, table_of

app = typer.Typer(help="List, create or revoke the tokens by which machines join.", no_args_is_help=False)


@app.callback(invoke_without_command=True)
def join_tokens(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """List, create or revoke the tokens by which machines join."""
    context: CommandContext = ctx.obj
    if ctx.invoked_subcommand is not None:
        context.choose_leader(leader)
        return
    _list(context, leader, json)


@app.command("list")
def list_join_tokens(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """Every join token that can still be used or was used, newest first."""
    _list(ctx.obj, leader, json)


@app.command("create")
def create_join_token(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="What it is for.")] = "",
    uses: Annotated[int, typer.Option("--uses", min=1, help="Machines it lets in.")] = 1,
    expires: Annotated[str, typer.Option("--expires", metavar="SPAN", help="How long it holds: 12h, 30d.")] = "1d",
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token by which machines join. Prints its secret, this once."""
    context: CommandContext = ctx.obj
    request = tokens_pb2.CreateJoinTokenRequest(label=label, uses=uses, expires_in_s=read_duration(expires, "expires"))
    made = context.run(leader, lambda to: to.ask(to.tokens.CreateJoinToken, request))
    if json or context.as_json:
        print_json(json_of(made))
        return
    out().print(made.secret, markup=False, soft_wrap=True)
    machines = "one machine" if uses == 1 else f"{uses} machines"
    told = f"{made.join_token.join_token_id}: shown this once; lets in {machines} within {expires}. On the machine:"
    err().print(told, markup=False)
    err().print("  SWARM_JOIN_TOKEN=... swarm-fellow --leader HOST:PORT", markup=False)


@app.command("revoke")
def revoke_join_token(
    ctx: typer.Context,
    join_token_id: Annotated[str, typer.Argument(metavar="ID", help="As `swarm join-token list` shows it.")],
    leader: LeaderOption = None,
) -> None:
    """End a join token; machines that joined by it stay."""
    context: CommandContext = ctx.obj
    request = tokens_pb2.RevokeJoinTokenRequest(join_token_id=join_token_id)
    context.run(leader, lambda to: to.ask(to.tokens.RevokeJoinToken, request))
    out().print(f"{join_token_id} is revoked; machines that joined by it stay", markup=False)


def _list(context: CommandContext, leader: str | None, json: bool) -> None:
    answer = context.run(leader, lambda to: to.ask(to.tokens.ListJoinTokens, tokens_pb2.ListJoinTokensRequest()))
    if json or context.as_json:
        print_json(json_of(answer))
    else:
        out().print(join_tokens_table(answer.join_tokens))


def join_tokens_table(tokens: Iterable[tokens_pb2.JoinToken]) -> RenderableType:
    """One line per join token."""
    table = table_of("JOIN TOKEN", "LABEL", "STATE", "CREATED", "USED", "LEFT", whole="JOIN TOKEN")
    for token in tokens:
        left = str(token.uses_left) if token.HasField("uses_left") else "any"
        state, created = state_text(token, time.time()), moment_text(token.created_s)
        table.add_row(escape(token.join_token_id), escape(token.label), state, created, str(token.used), left)
    if not table.row_count:
        return "No join token can be used. `swarm join-token create` makes one."
    return table


def state_text(token: tokens_pb2.JoinToken, now_s: float) -> str:
    """Whether it lets anyone in, and for how long."""
    if token.HasField("revoked_s"):
        return "revoked"
    if token.HasField("uses_left") and not token.uses_left:
        return "used up"
    left_s = token.expires_s - now_s
    return f"expires in {duration_text(left_s)}" if left_s > 0 else "expired"
