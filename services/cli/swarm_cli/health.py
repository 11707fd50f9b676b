"""`swarm health` and `swarm events`: how the machines of a pool do, and what happened to them."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import RenderableType
from silentswarm.leader.v1 import telemetry_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.terminal import json_of, out, print_json, shown, table_of

PoolOption = Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool.")]


def health_command(
    ctx: typer.Context, pool: PoolOption = "main", leader: LeaderOption = None, json: JsonOption = False
) -> None:
    """How the machines do: grades with their reasons, round trips."""
    context: CommandContext = ctx.obj
    request = telemetry_pb2.GetPoolMetricsRequest(pool_id=pool)
    answer = context.run(leader, lambda to: to.ask(to.telemetry.GetPoolMetrics, request))
    if json or context.as_json:
        print_json(json_of(answer))
        return
    out().print(health_table(answer.nodes))
    out().print(pool_line(answer), markup=False)


def events_command(
    ctx: typer.Context,
    pool: PoolOption = "main",
    fellow: Annotated[str, typer.Option("--fellow", metavar="NAME", help="Only of this machine.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many of the newest.")] = 30,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """What happened to the machines of a pool, oldest first."""
    context: CommandContext = ctx.obj
    request = telemetry_pb2.ListPoolEventsRequest(pool_id=pool, fellow_id=fellow, limit=count)
    answer = context.run(leader, lambda to: to.ask(to.telemetry.ListPoolEvents, request))
    if json or context.as_json:
        print_json(json_of(answer))
    else:
        out().print(events_table(reversed(answer.events)))


def health_table(nodes: Iterable[telemetry_pb2.NodeMetrics]) -> RenderableType:
    """One line a machine; what is not known is "-"."""
    table = table_of("FELLOW", "GRADE", "STATE", "AVAILABLE", "LEADER", "PEERS", "BUSY", "HEAT", "WHY")
    for node in nodes:
        graded = node.HasField("grade")
        table.add_row(
            shown(node.fellow_name),
            f"{shown(node.grade.band)} {node.grade.score:.0f}" if graded else "-",
            shown(node.state),
            _figure(node, "availability", 100, ".1f", " %"),
            _figure(node, "leader_round_trip_ms", 1, ".1f", " ms"),
            _figure(node, "peer_round_trip_ms", 1, ".1f", " ms"),
            _figure(node, "busy_share", 100, ".0f", " %"),
            _figure(node, "temperature_c", 1, ".0f", " C"),
            "; ".join(f"{shown(reason.words)} (-{reason.points:.0f})" for reason in node.grade.reasons) or "-",
        )
    return table if table.row_count else "No machine is in this pool."


def pool_line(pool: telemetry_pb2.PoolMetrics) -> str:
    """The pool in one line."""
    serving = pool.serving
    parts = [f"{pool.connected} of {len(pool.nodes)} connected", f"{serving.completed} replies"]
    if serving.failed:
        parts.append(f"{serving.failed} failed")
    parts.append(f"{serving.tokens_per_s:.1f} tokens/s")
    if serving.HasField("first_token_ms"):
        parts.append(f"first token after {serving.first_token_ms:.0f} ms")
    return ", ".join(parts)


def events_table(events: Iterable[telemetry_pb2.PoolEvent]) -> RenderableType:
    """One line an event."""
    table = table_of("WHEN", "FELLOW", "WHAT", "")
    for event in events:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at_s))
        table.add_row(when, shown(event.fellow_name or "-"), shown(event.kind.replace("_", " ")), shown(event.words))
    return table if table.row_count else "Nothing happened yet."


def _figure(node: telemetry_pb2.NodeMetrics, field: str, times: float, form: str, unit: str) -> str:
    return f"{getattr(node, field) * times:{form}}{unit}" if node.HasField(field) else "-"  # type: ignore[arg-type]
