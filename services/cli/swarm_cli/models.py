"""`swarm models` and `swarm model-import`: the catalog."""

from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer
from silentswarm.leader.v1 import models_pb2, serving_pb2
from swarm_core.errors import SwarmError

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.leader import Leader
from swarm_cli.model_view import catalog_table, model_table
from swarm_cli.performance_view import performance_view
from swarm_cli.progress import Steps, steps
from swarm_cli.serving_view import covers_line
from swarm_cli.speed_view import speed_lines
from swarm_cli.terminal import err, json_of, out, print_json, shown

app = typer.Typer(
    help="List the models of the catalog. `models show ID` shows one, `models performance ID` how it is served.",
    no_args_is_help=False,
)


@app.callback(invoke_without_command=True)
def models(ctx: typer.Context, leader: LeaderOption = None, json: JsonOption = False) -> None:
    """List the models of the catalog, or show one."""
    context: CommandContext = ctx.obj
    if ctx.invoked_subcommand is not None:
        context.choose_leader(leader)
        return
    answer = context.run(leader, lambda to: to.ask(to.models.ListModels, models_pb2.ListModelsRequest()))
    if json or context.as_json:
        print_json(json_of(answer))
    elif answer.models:
        out().print(catalog_table(answer.models))
    else:
        out().print("The catalog is empty. `swarm model-import SOURCE` adds a model.")


@app.command("show")
def show_model(
    ctx: typer.Context,
    model_id: Annotated[str, typer.Argument(metavar="ID")],
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Show one model; while it is served also its speed and covers."""
    context: CommandContext = ctx.obj
    model, status = context.run(leader, lambda to: _look_up(to, model_id))
    if json or context.as_json:
        print_json(json_of(model))
    else:
        out().print(model_table(model))
        for line in (*speed_lines(status), *covers_line(status)):
            out().print(line.strip())


async def _look_up(to: Leader, model_id: str) -> tuple[models_pb2.Model, serving_pb2.ModelStatus]:
    """A model and where it stands; a status that this leader does not tell is an empty one."""
    model = await to.ask(to.models.GetModel, models_pb2.GetModelRequest(model_id=model_id))
    try:
        status = await to.ask(to.serving.GetModelStatus, serving_pb2.GetModelStatusRequest(model_id=model_id))
    except SwarmError:
        status = serving_pb2.ModelStatus()
    return model, status


@app.command("performance")
def show_performance(
    ctx: typer.Context,
    model_id: Annotated[str, typer.Argument(metavar="ID")],
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Show how fast a model was, and where the time went. Over the last 15 minutes."""
    context: CommandContext = ctx.obj
    request = serving_pb2.GetPerformanceRequest(model_id=model_id)
    performance = context.run(leader, lambda to: to.ask(to.serving.GetPerformance, request))
    if json or context.as_json:
        print_json(json_of(performance))
    else:
        out().print(performance_view(performance))


def import_command(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, a .gguf file, or a hub id (org/name).")],
    model_id: Annotated[str, typer.Option("--id", help="The id it gets; made from the source when absent.")] = "",
    revision: Annotated[str, typer.Option("--revision", help="Revision on the hub.")] = "",
    base: Annotated[
        str, typer.Option("--base", metavar="MODEL", help="What an adapter belongs to; absent: as it says itself.")
    ] = "",
    by_reference: Annotated[
        bool,
        typer.Option("--by-reference", help="Of a hub id: keep no weights; fellows fetch their slices from the hub."),
    ] = False,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a checkpoint or an adapter into the catalog."""
    context: CommandContext = ctx.obj
    request = import_request(source, model_id, revision, base, by_reference)

    async def work(to: Leader) -> models_pb2.Model:
        with steps() as progress:
            return await import_model(to, request, progress)

    model = context.run(leader, work)
    if json or context.as_json:
        print_json(json_of(model))
    else:
        out().print(model_table(model))
        err().print(f"imported {shown(model.model_id)}; next: {shown(_load_of(model))} --wait")


def _load_of(model: models_pb2.Model) -> str:
    """How it is loaded: an adapter beside its base, so that both can be asked."""
    if model.HasField("adapter"):
        return f"swarm model-load {model.adapter.base_model_id} --adapter {model.model_id}"
    return f"swarm model-load {model.model_id}"


def import_request(
    source: str, model_id: str = "", revision: str = "", base: str = "", by_reference: bool = False
) -> models_pb2.ImportModelRequest:
    """What to import. A path that exists is made absolute: the leader may run in another folder."""
    path = Path(source).expanduser()
    named = str(path.resolve()) if path.exists() else source
    return models_pb2.ImportModelRequest(
        source=named, model_id=model_id, revision=revision, base_model_id=base, by_reference=by_reference
    )


async def import_model(leader: Leader, request: models_pb2.ImportModelRequest, progress: Steps) -> models_pb2.Model:
    """Import and show how far it is. Raises SwarmError."""
    progress.show("import", "starting")
    events = leader.follow(leader.models.ImportModel, request, leader.config.load_timeout_s)
    async with aclosing(events):
        async for event in events:
            if event.HasField("model"):
                return event.model
            progress.show("import", event.progress.step, event.progress.done, event.progress.total)
    raise SwarmError("the leader ended the import without a model; its log says why")
