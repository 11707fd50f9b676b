"""`swarm status`: the leader, what it serves and the machines, on one page."""

from dataclasses import dataclass

import typer
from rich.markup import escape
from silentswarm.leader.v1 import fleet_pb2, serving_pb2, status_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.failures import FAILED
from swarm_cli.fleet import fellows_table
from swarm_cli.leader import Leader
from swarm_cli.serving_view import served_view
from swarm_cli.terminal import json_of, out, print_json


@dataclass(frozen=True)
class Overview:
    """Three answers of the leader, taken one after the other."""

    address: str
    health: status_pb2.GetHealthResponse
    ready: status_pb2.GetReadyResponse
    serving: serving_pb2.ListServingResponse
    fellows: fleet_pb2.ListFellowsResponse


def status_command(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """Show the leader, the models served and the fellows; exit 1 while the leader takes no work."""
    context: CommandContext = ctx.obj
    overview = context.run(leader, look)
    if json or context.as_json:
        print_json(
            {
                "address": overview.address,
                "health": json_of(overview.health),
                "ready": json_of(overview.ready),
                "serving": json_of(overview.serving)["models"],
                "fellows": json_of(overview.fellows)["fellows"],
            }
        )
    else:
        show(overview)
    if not overview.ready.ready:
        raise typer.Exit(FAILED)


async def look(leader: Leader) -> Overview:
    """Ask the leader for everything on the page. Raises SwarmError."""
    return Overview(
        address=leader.address,
        health=await leader.ask(leader.status.GetHealth, status_pb2.GetHealthRequest()),
        ready=await leader.ask(leader.status.GetReady, status_pb2.GetReadyRequest()),
        serving=await leader.ask(leader.serving.ListServing, serving_pb2.ListServingRequest()),
        fellows=await leader.ask(leader.fleet.ListFellows, fleet_pb2.ListFellowsRequest()),
    )


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
        console.print()
    if not overview.serving.models:
        console.print("No model is served. `swarm model-load ID --wait` loads one.\n")
    console.print(fellows_table(overview.fellows.fellows))
