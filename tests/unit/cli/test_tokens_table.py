"""A terminal that is narrow shows fewer columns, never half of an id."""

import io

import pytest
from rich.console import Console
from silentswarm.leader.v1 import tokens_pb2
from swarm_cli.tokens import tokens_table

TOKEN = tokens_pb2.ApiToken(
    token_id="tok-9a69e03198d89485", label="made by the leader", scopes=["read", "operate", "admin"], created_s=1
)


def lines_at(width: int) -> list[str]:
    """The table as a terminal of that width shows it."""
    console = Console(file=io.StringIO(), width=width)
    console.print(tokens_table([TOKEN], width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "scopes"), [(80, "admin"), (120, "admin"), (140, "read,operate,admin")])
def test_a_token_is_one_line_with_its_whole_id(width: int, scopes: str):
    header, line = lines_at(width)

    assert line.startswith(f"tok-9a69e03198d89485  made by the leader  {scopes}  ")
    assert ("GENERATED" in header) is (width == 140)
