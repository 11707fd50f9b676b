"""`swarm incidents`: what broke, and what was done about it."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from silentswarm.leader.v1 import resilience_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.terminal import json_of, out, print_json, table_of, without_controls


def incidents_command(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help="Only of this model.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=200, help="How many, newest first.")] = 20,
    steps: Annotated[bool, typer.Option("--steps", help="Show every step of each.")] = False,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """What broke, and what was done about it; newest first."""
    context: CommandContext = ctx.obj
    request = resilience_pb2.ListIncidentsRequest(model_id=model, page_size=count)
    answer = context.run(leader, lambda to: to.ask(to.resilience.ListIncidents, request))
    if json or context.as_json:
        print_json(json_of(answer))
    elif steps:
        for incident in answer.incidents:
            out().print("\n".join(steps_of(incident)), markup=False)
    else:
        out().print(incidents_table(answer.incidents))


def incidents_table(incidents: Iterable[resilience_pb2.Incident]) -> RenderableType:
    """One line per incident."""
    table = table_of("WHEN", "MODEL", "WHAT", "STAGES", "STATE", "TOOK", "LAST STEP")
    for incident in incidents:
        table.add_row(
            _when(incident.opened_s),
            escape(incident.model_id),
            escape(incident.kind),
            escape(", ".join(map(_say_stage, incident.stages)) or "-"),
            escape(incident.outcome or incident.step),
            f"{incident.recovered_ms / 1000:.1f} s" if incident.HasField("recovered_ms") else "-",
            escape(without_controls(incident.log[-1].what)) if incident.log else "-",
        )
    return table if table.row_count else "Nothing broke."


def steps_of(incident: resilience_pb2.Incident) -> list[str]:
    """Every step of one incident, a line each."""
    state = incident.outcome or incident.step
    lines = [f"{_when(incident.opened_s)} {incident.model_id}: {incident.kind}, {state}"]
    for step in incident.log:
        took = f"  +{step.at_s - incident.opened_s:.1f} s  "
        first, *more = without_controls(step.what).splitlines() or [""]
        lines += [took + first, *(" " * len(took) + line for line in more)]  # a stage's last words are several
    return lines


def _say_stage(stage: resilience_pb2.IncidentStage) -> str:
    replacement = f" -> {stage.replacement}" if stage.replacement else ""
    return without_controls(f"{stage.stage_index} {stage.lost_fellow}{replacement}")


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
