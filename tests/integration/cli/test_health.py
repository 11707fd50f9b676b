"""`swarm health`, `swarm events` and `swarm fellows logs`: what is known, and "-" for what is not."""

import json
from collections.abc import Callable

import pytest

from tests.integration.cli.conftest import Ended

Swarm = Callable[..., Ended]


def test_health_shows_grades_with_their_reasons_and_no_zero_for_what_is_unknown(swarm: Swarm):
    ended = swarm("health")

    assert ended.code == 0
    header, first, second, pool = ended.out.splitlines()
    assert header.split() == ["FELLOW", "GRADE", "STATE", "AVAILABLE", "LEADER", "PEERS", "BUSY", "HEAT", "WHY"]
    assert first.split() == [
        *("fellow-1", "B", "79", "connected", "99.5", "%", "12.3", "ms", "-", "-", "61", "C"),
        *("a", "stage", "crashed", "twice", "(-20)"),
    ]
    assert second.split() == ["fellow-2", "-", "silent", "-", "-", "-", "-", "-", "-"]
    assert pool == "1 of 2 connected, 12 replies, 1 failed, 3.2 tokens/s, first token after 310 ms"


def test_a_pool_that_is_not_there_is_refused_with_those_that_are(swarm: Swarm):
    ended = swarm("health", "--pool", "cellar")

    assert ended.code != 0
    assert "no pool 'cellar'; there are: main" in ended.err


def test_events_are_lines_in_the_order_of_time(swarm: Swarm):
    ended = swarm("events", "-n", "5")

    assert ended.code == 0
    assert ended.out.splitlines()[1].split()[2:] == ["fellow-2", "stage", "crashed", "tiny", "stage", "1:", "[gone]"]


def test_logs_print_the_lines_as_they_are(swarm: Swarm):
    ended = swarm("fellows", "logs", "fellow-1", "-n", "2")

    assert ended.code == 0
    assert [line.partition(" ")[2] for line in ended.out.splitlines()] == [
        "tiny-stage-0: line [bold]0",
        "tiny-stage-0: line [bold]1",
    ]


@pytest.mark.parametrize("arguments", [("health",), ("events",), ("fellows", "logs", "fellow-1")])
def test_json_prints_one_document(swarm: Swarm, arguments: tuple[str, ...]):
    ended = swarm(*arguments, "--json")

    assert ended.code == 0
    assert json.loads(ended.out)
