"""What people read of a ring that heals: short, of their machines, and true."""

import pytest
from swarm_core.errors import FellowLost, LinkBroken, StageFailed
from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.healing.words import (
    SHORT_MAX,
    join_words,
    say_fault,
    say_fix,
    say_lost,
    say_moving,
    shorten,
    tell_lost,
)
from swarm_leader.domain.incidents import IncidentKind
from swarm_leader.domain.records import StageRecord

STAGE = StageRecord(1, "id-2", 15, 30, weight_bytes=1, kv_bytes=1, working_bytes=1, free_bytes=None)
LAST_WORDS = "stage 1 on fellow-2 crashed: it was ended by SIGKILL; it last wrote:\n2026 kv budget 3 GB"


def test_a_reason_names_the_fault_and_who_helps_in_one_short_line():
    fault = say_fault(IncidentKind.CRASH, StageFailed(LAST_WORDS, fellow="fellow-2", stage=1))

    assert (
        say_moving(fault, {1: Choice(STAGE, Way.STANDBY, "fellow-3")}) == "stage 1 died on fellow-2; fellow-3 loads it"
    )
    many = {index: Choice(STAGE, Way.HOT, f"fellow-{index}") for index in range(9)}
    assert len(say_moving(fault, many)) <= SHORT_MAX


@pytest.mark.parametrize("kind", list(IncidentKind))
def test_the_last_words_of_a_process_are_in_no_short_reason(kind: IncidentKind):
    for why in (
        StageFailed(LAST_WORDS, fellow="fellow-2", stage=1),
        LinkBroken(LAST_WORDS),
        FellowLost(LAST_WORDS * 9),
    ):
        said = say_fault(kind, why)
        assert said and "kv budget" not in said and len(said) <= SHORT_MAX


def test_layers_are_told_as_status_tells_them_and_a_machine_that_is_away_by_its_name():
    assert tell_lost(STAGE, "fellow-2") == "fellow-2, which holds stage 1 (layers 15-29), is away"
    assert say_lost(STAGE, "fellow-2", is_connected=False) == "fellow-2 with stage 1 is away"
    assert say_lost(STAGE, "fellow-2", is_connected=True) == "stage 1 died on fellow-2"


def test_what_helps_names_who_would_by_coming_back():
    assert say_fix("tiny", ["fellow-2"]).startswith("it is loaded again by itself when fellow-2 is back, or a fellow")
    assert say_fix("tiny", []).startswith("it is loaded again by itself when a fellow with room joins")


def test_sentences_are_joined_without_a_full_stop_in_between_and_none_twice():
    assert join_words("it is away", "add a fellow.", "", "it is away") == "it is away; add a fellow"
    assert shorten("ended:\nmore") == "ended"
