"""`swarm model-load` and `swarm model-unload`: which models are served, and where."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType
from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.failures import LoadDidNotFinish
from swarm_cli.leader import Leader
from swarm_cli.load_options import AdapterOption, CodecOption, QuantizationOption
from swarm_cli.plan_view import plan_view
from swarm_cli.progress import Steps, steps
from swarm_cli.serving_view import ENDED, served_view, state_text
from swarm_cli.terminal import err, json_of, out, print_json

UNLOAD_TIMEOUT_S = 120.0  # a fellow asks its stage to exit, and kills it after 10 s; a load in flight is ended first


class TransportChoice(StrEnum):
    """How the stages reach each other."""

    AUTO = "auto"
    TUNNEL = "tunnel"
    P2P = "p2p"
    MESH = "mesh"

    @property
    def proto(self) -> stage_pb2.Transport:
        """The same choice on the wire."""
        return stage_pb2.Transport.Value(f"TRANSPORT_{self.name}")


TransportOption = Annotated[
    TransportChoice,
    typer.Option(
        "--transport",
        help="auto: direct where it answers, else the relay (tunnel). p2p: direct or not at all. mesh: that, over "
        "addresses of an overlay network alone.",
    ),
]
ModelArgument = Annotated[str, typer.Argument(metavar="ID")]


def load_command(
    ctx: typer.Context,
    model_id: ModelArgument,
    num_stages: Annotated[int, typer.Option("--num-stages", min=0, help="0: as few as fit, or what is faster.")] = 0,
    fellows: Annotated[
        list[str] | None, typer.Option("--fellow", metavar="F", help="A fellow's name or id; repeat in ring order.")
    ] = None,
    transport: TransportOption = TransportChoice.AUTO,
    context_tokens: Annotated[
        int, typer.Option("--context", min=0, help="Longest conversation, tokens; 0: the leader's default.")
    ] = 0,
    quantization: QuantizationOption = None,
    adapters: AdapterOption = None,
    codec: CodecOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be done.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is ready; exit 1 when it fails.")] = False,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Load a model over one or more fellows."""
    context: CommandContext = ctx.obj
    request = serving_pb2.LoadModelRequest(
        model_id=model_id,
        num_stages=num_stages,
        fellow_ids=fellows or [],
        transport=transport.proto,
        context_tokens=context_tokens,
        quantization=quantization.proto if quantization else None,
        adapters=adapters or [],
        codec=codec or "",
    )

    async def work(to: Leader) -> serving_pb2.ModelStatus:
        if plan:
            return await to.ask(to.serving.PlanModel, request)
        status = await to.ask(to.serving.LoadModel, request)
        if not wait:
            return status
        try:
            with steps() as progress:
                return await wait_until_ready(to, model_id, progress)
        except asyncio.CancelledError:  # Ctrl-C ends the watching; the leader loads on
            ways = f"`swarm status` shows it, `swarm model-unload {model_id}` ends it"
            err().print(f"{model_id} goes on loading: {ways}", markup=False)
            raise

    status = context.run(leader, work)
    _show(status, json or context.as_json, plan_view if plan else served_view)


def unload_command(
    ctx: typer.Context, model_id: ModelArgument, leader: LeaderOption = None, json: JsonOption = False
) -> None:
    """End serving a model; replies in flight fail."""
    context: CommandContext = ctx.obj
    request = serving_pb2.UnloadModelRequest(model_id=model_id)
    status = context.run(leader, lambda to: to.ask(to.serving.UnloadModel, request, UNLOAD_TIMEOUT_S))
    _show(status, json or context.as_json)


async def wait_until_ready(leader: Leader, model_id: str, progress: Steps) -> serving_pb2.ModelStatus:
    """Follow a load, one line of progress per stage. Raises LoadDidNotFinish with the leader's reason."""
    request = serving_pb2.WatchModelRequest(model_id=model_id)
    updates = leader.follow(leader.serving.WatchModel, request, leader.config.load_timeout_s)
    status = serving_pb2.ModelStatus(model_id=model_id)
    async with aclosing(updates):
        async for status in updates:
            show_load(status, progress)
            if status.state in ENDED:
                break
    if status.state != serving_pb2.PLACEMENT_STATE_READY:
        reason = status.reason or "the leader gives no reason; see its log"
        raise LoadDidNotFinish(f"{model_id} is {state_text(status.state)}: {reason}")
    return status


def show_load(status: serving_pb2.ModelStatus, progress: Steps) -> None:
    """One update: every stage where it is, then the ring."""
    for stage in status.stages:
        name = f"stage {stage.stage_index} on {stage.fellow_name or stage.fellow_id}"
        if stage.state == "loaded":
            progress.show(name, "loaded", 1, 1)
        else:
            progress.show(name, stage.step or stage.state, stage.done, stage.total)
    if status.state == serving_pb2.PLACEMENT_STATE_WIRING:
        progress.show("ring", "connecting the stages, trying a test token")
    if status.state == serving_pb2.PLACEMENT_STATE_READY:
        progress.show("ring", "ready", 1, 1)


def _show(
    status: serving_pb2.ModelStatus, json: bool, view: Callable[[serving_pb2.ModelStatus], RenderableType] = served_view
) -> None:
    if json:
        print_json(json_of(status))
    else:
        out().print(view(status))
