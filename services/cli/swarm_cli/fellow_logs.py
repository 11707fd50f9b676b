"""`swarm fellows logs`: what a fellow and its stages wrote, as far as the leader keeps it."""

import time
from typing import Annotated

import typer
from silentswarm.leader.v1 import logs_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.leader import Leader
from swarm_cli.terminal import json_of, print_json, write_text

FOLLOW_S = 24 * 3600.0


def logs_command(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A fellow's name or id.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="Lines from the end.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come.")] = False,
    source: Annotated[str, typer.Option("--source", help='Only "fellow", or one stage as the log names it.')] = "",
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Show the log of a fellow and its stages. Ctrl-C ends following."""
    context: CommandContext = ctx.obj
    request = logs_pb2.WatchLogsRequest(fellow_id=name, tail_lines=lines, follow=follow, source=source)
    as_json = json or context.as_json

    async def show(to: Leader) -> list[logs_pb2.LogLine]:
        kept = []
        within_s = FOLLOW_S if follow else to.config.call_timeout_s
        async for line in to.follow(to.logs.WatchLogs, request, within_s):
            if as_json:
                kept.append(line)
            else:
                write_text(f"{time.strftime('%H:%M:%S', time.localtime(line.at_s))} {line.source}: {line.text}\n")
        return kept

    kept = context.run(leader, show)
    if as_json:
        print_json({"lines": [json_of(line) for line in kept]})
