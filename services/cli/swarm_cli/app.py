"""The `swarm` command, put together: one sub-command per noun or act. Decides nothing but the exit code."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from swarm_core.config import from_environment
from swarm_core.errors import SwarmError

from swarm_cli import (
    chat,
    fleet,
    health,
    incidents,
    inference,
    join_tokens,
    models,
    serving,
    status,
    tokens,
    trust,
)
from swarm_cli.bench import command as bench
from swarm_cli.config import CliConfig
from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.failures import FAILED, INTERRUPTED, OK, exit_code_of, words_of
from swarm_cli.terminal import err, without_controls
from swarm_cli.up import command as up


def build_app() -> typer.Typer:
    """Every command of `swarm`."""
    # rich_markup_mode=None keeps help and usage errors plain text, so that a pipe never sees escape codes.
    app = typer.Typer(
        name="swarm", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
    )
    app.callback()(root)
    app.add_typer(models.app, name="models")
    app.command("model-import")(models.import_command)
    app.command("model-load")(serving.load_command)
    app.command("model-unload")(serving.unload_command)
    app.command("infer")(inference.infer_command)
    app.command("chat")(chat.chat_command)
    app.command("status")(status.status_command)
    app.add_typer(fleet.app, name="fellows")
    app.command("health")(health.health_command)
    app.command("events")(health.events_command)
    app.command("incidents")(incidents.incidents_command)
    app.add_typer(tokens.app, name="tokens")
    app.add_typer(join_tokens.app, name="join-token")
    app.add_typer(trust.app, name="trust")
    app.command("bench")(bench.bench_command)
    app.command("up")(up.up_command)
    return app


def root(
    ctx: typer.Context,
    leader: LeaderOption = None,
    json: JsonOption = False,
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and end.")] = False,
) -> None:
    """Talk to a swarm: its models, its machines, its replies. SWARM_LEADER or --leader names the leader."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"swarm {version_of('silentswarm')}")
        raise typer.Exit(OK)
    context: CommandContext = ctx.obj
    context.choose_leader(leader)
    context.as_json = json


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """One command, start to end; never raises, whatever a user does. Returns the exit code."""
    try:
        config = from_environment(CliConfig, environ)
        build_app()(list(arguments), obj=CommandContext(config, environ), prog_name="swarm")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except SwarmError as error:
        err().print(f"error: {without_controls(words_of(error))}", style="red", markup=False)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader went away; nothing is left to flush to
        return FAILED
    except OSError as error:
        err().print(f"error: {error}", style="red", markup=False)
        return FAILED
    return OK
