"""`swarm fellows`: the machines, and what may be asked of one."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from silentswarm.core.v1 import hardware_pb2
from silentswarm.leader.v1 import fleet_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.fellow_logs import logs_command
from swarm_cli.leader import Leader
from swarm_cli.serving import UNLOAD_TIMEOUT_S
from swarm_cli.terminal import bytes_text, err, json_of, out, print_json, table_of, without_controls

app = typer.Typer(help="List the machines; ping one, drain it, read its log.", no_args_is_help=False)
app.command("logs")(logs_command)
FellowArgument = Annotated[str, typer.Argument(metavar="NAME", help="A fellow's name or id.")]


@app.callback(invoke_without_command=True)
def fellows(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """List the machines; ping one, drain it, read its log."""
    context: CommandContext = ctx.obj
    if ctx.invoked_subcommand is not None:
        context.choose_leader(leader)
        return
    answer = context.run(leader, lambda to: to.ask(to.fleet.ListFellows, fleet_pb2.ListFellowsRequest()))
    if json or context.as_json:
        print_json(json_of(answer))
    else:
        out().print(fellows_table(answer.fellows))


@app.command("ping")
def ping_fellow(
    ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None, json: JsonOption = False
) -> None:
    """Ask a fellow for an answer; shows how long it took."""
    context: CommandContext = ctx.obj
    request = fleet_pb2.PingFellowRequest(fellow_id=name)
    answer = context.run(leader, lambda to: to.ask(to.fleet.PingFellow, request))
    if json or context.as_json:
        print_json(json_of(answer))
    else:
        out().print(f"{name} answered in {answer.round_trip_ms:.1f} ms", markup=False)


@app.command("release")
def release_fellow(ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None) -> None:
    """End every stage of a fellow; it stays connected."""
    context: CommandContext = ctx.obj
    request = fleet_pb2.ReleaseFellowRequest(fellow_id=name)

    async def release(to: Leader) -> list[str]:
        served = await _models_on(to, name)
        await to.ask(to.fleet.ReleaseFellow, request, UNLOAD_TIMEOUT_S)
        return served

    out().print(f"{name} holds no stage any more{_ended(context.run(leader, release))}", markup=False)


@app.command("purge")
def purge_fellow(ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None) -> None:
    """End every stage of a fellow and empty its model cache."""
    context: CommandContext = ctx.obj
    request = fleet_pb2.PurgeFellowRequest(fellow_id=name)

    async def purge(to: Leader) -> list[str]:
        served = await _models_on(to, name)
        await to.ask(to.fleet.PurgeFellow, request, UNLOAD_TIMEOUT_S)
        return served

    ended = _ended(context.run(leader, purge))
    out().print(f"{name} holds no stage and no cached model any more{ended}", markup=False)


@app.command("update")
def update_fellow(ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None) -> None:
    """End every stage of a fellow and start its program anew.

    As it lies on its disk now; it comes back by itself.
    """
    context: CommandContext = ctx.obj
    request = fleet_pb2.UpdateFellowRequest(fellow_id=name)
    context.run(leader, lambda to: to.ask(to.fleet.UpdateFellow, request, UNLOAD_TIMEOUT_S))
    out().print(f"{name} starts its program anew", markup=False)


@app.command("drain")
def drain_fellow(
    ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None, json: JsonOption = False
) -> None:
    """Empty a fellow with nothing lost; others take over its stages.

    They load them while it serves still. Nothing new is placed on it, until `swarm fellows undrain`.
    """
    context: CommandContext = ctx.obj
    request = fleet_pb2.DrainFellowRequest(fellow_id=name)
    answer = context.run(leader, lambda to: to.ask(to.fleet.DrainFellow, request))
    if json or context.as_json:
        print_json(json_of(answer))
        return
    moves = "; ".join(
        f"stage {move.stage_index} of {without_controls(move.model_id)} goes to {without_controls(move.to_fellow)}"
        for move in answer.moves
    )
    words = moves or "it holds no stage and can be switched off"
    out().print(f"{name} is draining: {words}", markup=False)
    if moves:
        err().print(f"run this again to see when {name} holds nothing any more", markup=False)


@app.command("undrain")
def undrain_fellow(ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None) -> None:
    """Let a drained fellow take stages again."""
    context: CommandContext = ctx.obj
    request = fleet_pb2.UndrainFellowRequest(fellow_id=name)
    context.run(leader, lambda to: to.ask(to.fleet.UndrainFellow, request))
    out().print(f"{name} takes stages again", markup=False)


@app.command("delete")
def delete_fellow(ctx: typer.Context, name: FellowArgument, leader: LeaderOption = None) -> None:
    """Forget a fellow: ends its stages and its link; it may join again."""
    context: CommandContext = ctx.obj
    request = fleet_pb2.DeleteFellowRequest(fellow_id=name)

    async def forget(to: Leader) -> bool:
        known = await to.ask(to.fleet.ListFellows, fleet_pb2.ListFellowsRequest())
        await to.ask(to.fleet.DeleteFellow, request, UNLOAD_TIMEOUT_S)
        return any(fellow.state == "connected" for fellow in known.fellows if name in (fellow.name, fellow.fellow_id))

    was_connected = context.run(leader, forget)
    out().print(f"{name} is forgotten", markup=False)
    if was_connected:
        advice = "stop it first, or use `swarm fellows release` to end its stages only"
        err().print(f"{name} runs and joins again: {advice}", markup=False)


async def _models_on(to: Leader, name: str) -> list[str]:
    """Models with a stage on a fellow, which end with it."""
    known = await to.ask(to.fleet.ListFellows, fleet_pb2.ListFellowsRequest())
    mine = [held for fellow in known.fellows if name in (fellow.name, fellow.fellow_id) for held in fellow.stages]
    return sorted({held.spec.model_id for held in mine})


def _ended(models: list[str]) -> str:
    return f"; that ended {', '.join(map(without_controls, models))}" if models else ""


def fellows_table(fellows: Iterable[fleet_pb2.Fellow]) -> RenderableType:
    """One line per fellow."""
    table = table_of("FELLOW", "STATE", "DEVICE", "FREE", "STAGES", "HEARTBEAT", "VERSION")
    for fellow in fellows:
        age = f"{fellow.heartbeat_age_s:.0f} s ago" if fellow.HasField("heartbeat_age_s") else "never"
        table.add_row(
            escape(fellow.name),
            escape(fellow.state),
            escape(", ".join(device.name or device.kind for device in fellow.hardware.devices) or "none"),
            free_text(fellow.hardware.devices),
            escape(", ".join(f"{held.spec.model_id}#{held.spec.stage_index}" for held in fellow.stages) or "-"),
            age,
            escape(fellow.version),
        )
    if not table.row_count:
        return "No fellow has joined. Start one: swarm-fellow --leader HOST:PORT"
    return table


def free_text(devices: Iterable[hardware_pb2.Device]) -> str:
    """Free memory per device; a device that cannot say is unknown, not zero."""
    free = (device.memory_free_bytes if device.HasField("memory_free_bytes") else None for device in devices)
    return ", ".join(bytes_text(count) for count in free) or "-"
