"""`swarm up`: reads the options, looks at the machine, runs the supervisor."""

import asyncio
import dataclasses
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import psutil
import typer
from swarm_core.errors import BadRequest

from swarm_cli.context import CommandContext
from swarm_cli.load_options import QuantizationOption
from swarm_cli.serving import TransportChoice, TransportOption
from swarm_cli.terminal import err
from swarm_cli.up.lock import hold_folder
from swarm_cli.up.options import Machine, UpOptions
from swarm_cli.up.plan import LEADER, fellow_names
from swarm_cli.up.ports import choose_free_ports, choose_port
from swarm_cli.up.supervise import Supervisor

DEFAULT_FOLDER = Path("~/.silent-swarm/up")
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")]


def up_command(
    ctx: typer.Context,
    fellows: Annotated[int, typer.Option("--fellows", min=1, max=64, help="Fellow processes.")] = 2,
    stages: Annotated[
        int | None, typer.Option("--stages", min=1, help="Stages of the ring; 2, or 1 with one fellow.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="An id of the catalog, or a folder, .gguf file or hub id to import first."),
    ] = None,
    transport: TransportOption = TransportChoice.AUTO,
    quantization: QuantizationOption = None,
    http_port: PortOption = 8080,
    grpc_port: PortOption = 50551,
    data_dir: Annotated[Path, typer.Option("--data-dir", help="All state.")] = DEFAULT_FOLDER,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", help="The catalog's folder; inside --data-dir when absent.")
    ] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Load nothing.")] = False,
    no_metrics: Annotated[
        bool, typer.Option("--no-metrics", help="Give no process a port for Prometheus; the gateway's /metrics stays.")
    ] = False,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Start nothing again that dies; a dead leader or gateway ends the run.")
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option("--ready-file", help="Gets addresses and process ids as JSON once all is ready.")
    ] = None,
    once: Annotated[str | None, typer.Option("--once", metavar="PROMPT", help="Print one reply and end.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Open a chat; everything ends with it.")] = False,
) -> None:
    """Run a whole swarm on this machine. Starts a leader, a gateway and fellows, and a model over several stages."""
    context: CommandContext = ctx.obj
    if once is not None and not once.strip():
        raise BadRequest("--once has nothing to ask; give it a prompt", field="once")
    if once is not None and chat:
        raise BadRequest("--once ends after one reply and --chat goes on; give one of them", field="once")
    if no_model and (once is not None or chat):
        raise BadRequest("--no-model loads nothing, so --once and --chat have nothing to ask", field="no-model")
    options = UpOptions(
        fellows=fellows,
        stages=stages or min(2, fellows),
        model=model,
        transport=transport,
        http_port=http_port,
        grpc_port=grpc_port,
        data_dir=data_dir.expanduser().resolve(),
        model_dir=model_dir.expanduser().resolve() if model_dir else None,
        no_model=no_model,
        ready_file=ready_file.expanduser().resolve() if ready_file else None,
        once=once,
        chat=chat and has_speaker(),
        quantization=quantization,
        restart=not no_restart,
    )
    if chat and not options.chat:
        err().print("no terminal to chat on; serving without one")
    if http_port == grpc_port != 0:
        raise BadRequest(f"--http-port and --grpc-port are both {http_port}; give them different ports", field="port")
    # The folder first: another run there explains taken ports better than the ports do.
    with hold_folder(options.data_dir), terminal_restored():
        options = with_ports(options, with_metrics=not no_metrics)
        code = asyncio.run(Supervisor(options, look_at_machine(), context.config, context.environ).run())
    raise typer.Exit(code)


def with_ports(options: UpOptions, with_metrics: bool) -> UpOptions:
    """The same with free ports for 0, and one for the figures of each process. Raises Conflict when one is taken."""
    http_port = choose_port(options.http_port, "--http-port")
    grpc_port = choose_port(options.grpc_port, "--grpc-port")
    while grpc_port == http_port:  # two free ones may be the same, one after the other
        grpc_port = choose_port(0, "--grpc-port")
    names = [LEADER, *fellow_names(options)] if with_metrics else []
    return dataclasses.replace(
        options,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_ports=choose_free_ports(names, taken=(http_port, grpc_port)),
    )


def look_at_machine() -> Machine:
    """Processors this process may use and memory that is free."""
    return Machine(len(os.sched_getaffinity(0)), psutil.virtual_memory().available)


def has_speaker() -> bool:
    """Someone may type: a terminal, a pipe or a file on stdin, and not /dev/null or nothing."""
    if sys.stdin is None or sys.stdin.closed:
        return False
    return sys.stdin.isatty() or not stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)


@contextmanager
def terminal_restored() -> Iterator[None]:
    """A chat that is killed in its line editor leaves the terminal without echo; put it back as it was."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
