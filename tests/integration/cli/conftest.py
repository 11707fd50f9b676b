"""The `swarm` command against a scripted leader."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.integration.cli.scripted_leader import ScriptedLeader, serve

RUN_S = 30


@dataclass(frozen=True)
class Ended:
    """One finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
def leader() -> Iterator[ScriptedLeader]:
    """A leader that a test may still change."""
    with serve(ScriptedLeader()) as scripted:
        yield scripted


@pytest.fixture
def swarm(leader: ScriptedLeader) -> Callable[..., Ended]:
    """Run `swarm ARGUMENT ...` as its own process; nothing it writes goes to a terminal."""

    def run(*arguments: str, given: str = "", **environ: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "swarm_cli", *arguments],
            env={**os.environ, "SWARM_LEADER": leader.address, "FORCE_COLOR": "1", **environ},
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run
