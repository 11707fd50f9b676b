"""`swarm status`: the leader, what it serves and the machines, on one page."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import typer
from rich.markup import escape
from silentswarm.leader.v1 import fleet_pb2, serving_pb2, status_pb2
from swarm_core.errors import SwarmError

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.failures import FAILED
from swarm_cli.fleet import fellows_table
from swarm_cli.leader import Leader
from swarm_cli.performance_view import lately_text
from swarm_cli.serving_view import served_view
from swarm_cli.terminal import json_of, out, print_json


@dataclass(frozen=True)
class Overview:
    """Answers of the leader, taken one after the other. lately: by model id; a model that ended meanwhile has none."""

    address: str
    health: status_pb2.GetHealthResponse
    ready: status_pb2.GetReadyResponse
    serving: serving_pb2.ListServingResponse
    fellows: fleet_pb2.ListFellowsResponse
    lately: Mapping[str, serving_pb2.ModelPerformance]


def status_command(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """Show the leader, the models served and the fellows. Exits with 1 while the leader takes no work."""
    context: CommandContext = ctx.obj
    overview = context.run(leader, look)
    if json or context.as_json:
        print_json(
            {
                "address": overview.address,
                "health": json_of(overview.health),
                "ready": json_of(overview.ready),
                "serving": json_of(overview.serving)["models"],
                "performance": [json_of(performance) for performance in overview.lately.values()],
                "fellows": json_of(overview.fellows)["fellows"],
            }
        )
    else:
        show(overview)
    if not overview.ready.ready:
        raise typer.Exit(FAILED)


async def look(leader: Leader) -> Overview:
    """Ask the leader for everything on the page. Raises SwarmError."""
    serving = await leader.ask(leader.serving.ListServing, serving_pb2.ListServingRequest())
    return Overview(
        address=leader.address,
        health=await leader.ask(leader.status.GetHealth, status_pb2.GetHealthRequest()),
        ready=await leader.ask(leader.status.GetReady, status_pb2.GetReadyRequest()),
        serving=serving,
        fellows=await leader.ask(leader.fleet.ListFellows, fleet_pb2.ListFellowsRequest()),
        lately=await _look_back(leader, [served.model_id for served in serving.models]),
    )


async def _look_back(leader: Leader, model_ids: list[str]) -> dict[str, serving_pb2.ModelPerformance]:
    """The last minutes of each model."""
    lately = {}
    for model_id in model_ids:
        request = serving_pb2.GetPerformanceRequest(model_id=model_id)
        with suppress(SwarmError):
            lately[model_id] = await leader.ask(leader.serving.GetPerformance, request)
    return lately


def show(overview: Overview) -> None:
    """The page."""
    console = out()
    ready = "ready" if overview.ready.ready else "not ready: " + "; ".join(overview.ready.reasons)
    console.print(
        f"[bold]leader[/bold] {escape(overview.address)}  {escape(ready)}  "
        f"version {escape(overview.health.version)}  up {overview.health.uptime_s:.0f} s"
    )
    console.print()
    for served in overview.serving.models:
        console.print(served_view(served))
        if served.model_id in overview.lately:
            console.print(lately_text(overview.lately[served.model_id]), markup=False)
        console.print()
    if not overview.serving.models:
        console.print("No model is served. `swarm model-load ID --wait` loads one.\n")
    console.print(fellows_table(overview.fellows.fellows))
