"""What a command gets besides its own options: settings, and how to run against the leader."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from swarm_cli.config import CliConfig
from swarm_cli.interrupts import ended_by_ctrl_c
from swarm_cli.leader import Leader

T = TypeVar("T")

LeaderOption = Annotated[
    str | None, typer.Option("--leader", metavar="HOST:PORT", help="The leader's gRPC address.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


@dataclass
class CommandContext:
    """config: settings so far. environ: the environment, for the processes `swarm up` starts.

    as_json: --json stood before the command's name.
    """

    config: CliConfig
    environ: Mapping[str, str]
    as_json: bool = False

    def choose_leader(self, address: str | None) -> CliConfig:
        """Settings with --leader applied, when it was given."""
        if address is not None:
            self.config = dataclasses.replace(self.config, leader=address)
        return self.config

    def run(self, address: str | None, work: Callable[[Leader], Awaitable[T]]) -> T:
        """Do `work` on one connection and hang up. Raises SwarmError."""
        config = self.choose_leader(address)

        async def connected() -> T:
            async with Leader(config) as leader:
                return await work(leader)

        return asyncio.run(ended_by_ctrl_c(connected()))
