"""The real thing for tests: `swarm up` and single processes, started, waited for and ended by process id."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

START_S = 180.0
STOP_S = 30.0


@dataclass
class Process:
    """One process of ours with its log."""

    popen: subprocess.Popen
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end and wait; kill it when it does not."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start(
    module: str, *arguments: object, log: Path, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Process:
    """Start `python -m module arguments`; its output goes to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*prefix, sys.executable, "-m", module, *map(str, arguments)]
    with log.open("ab") as out:
        popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **(env or {})}
        )
    return Process(popen, log)


@dataclass
class Swarm:
    """A running `swarm up`."""

    process: Process
    http: str
    grpc: str
    model: str | None
    processes: dict[str, int]
    data_dir: Path
    extra: list[Process] = field(default_factory=list)
    admin_token_file: str | None = None  # where tokens are asked for

    def cli(self, *arguments: object, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        """Run `swarm ...` against this swarm's leader, as its admin."""
        return run_cli(*arguments, leader=self.grpc, timeout_s=timeout_s, api_key_file=self.admin_token_file or "")


def run_cli(
    *arguments: object, leader: str, timeout_s: float = 180.0, api_key_file: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `swarm ...` against a leader."""
    command = [sys.executable, "-m", "swarm_cli", *map(str, arguments)]
    env = {**os.environ, "SWARM_LEADER": leader, "NO_COLOR": "1", "COLUMNS": "160"}
    env["SWARM_API_KEY_FILE"] = api_key_file
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)


@contextmanager
def swarm_up(data_dir: Path, *options: object, env: dict[str, str] | None = None) -> Iterator[Swarm]:
    """`swarm up` with free ports, until a token went round (or the fleet stands, with --no-model)."""
    ready = data_dir / "ready.json"
    arguments = ["up", "--http-port", 0, "--grpc-port", 0, "--data-dir", data_dir, "--ready-file", ready, *options]
    process = start("swarm_cli", *arguments, log=data_dir / "up.log", env=env)
    try:
        facts = _await_ready(process, ready)
        yield Swarm(
            process,
            facts["http"],
            facts["grpc"],
            facts["model"],
            facts["processes"],
            data_dir,
            admin_token_file=facts["admin_token_file"],
        )
    finally:
        process.stop(signal.SIGINT)


def _await_ready(process: Process, ready: Path) -> dict:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if ready.exists():
            return json.loads(ready.read_text())
        if process.popen.poll() is not None:
            raise AssertionError(f"swarm up ended with {process.popen.returncode}:\n{process.tail()}")
        time.sleep(0.05)
    raise AssertionError(f"swarm up was not ready within {START_S:g} s:\n{process.tail()}")


def free_port() -> int:
    """A port nobody listens on now, below those that port 0 and outgoing connections get: it stays free until used."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are all taken")


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition, timeout_s: float = 30.0, what: str = "the condition", every_s: float = 0.05):
    """Poll until `condition()` is truthy and return it; an AssertionError says what was waited for.

    every_s: for conditions that start a process, seldom enough that what is waited for gets the processor.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(every_s)
    raise AssertionError(f"{what} did not come within {timeout_s:g} s")


async def until(condition, timeout_s: float = 30.0, what: str = "the condition"):
    """As wait_for, for an async condition."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := await condition():
            return value
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what} did not come within {timeout_s:g} s")
