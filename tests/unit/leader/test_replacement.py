"""Who is proposed to be taken out of service, and every guard that keeps a machine in it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.telemetry.replacement import BAD_S, COOLDOWN_S, HEALTHY, Candidate, propose

NOW_S = 10_000.0
GOOD = Candidate("f1", "kitchen", "A", 0.0, 98.0, is_connected=True, is_draining=False)
BAD = Candidate("f2", "attic", "F", NOW_S - BAD_S, 12.0, is_connected=True, is_draining=False, why="a stage crashed")


def test_the_machine_that_has_been_bad_for_long_is_proposed_with_its_reason():
    proposal = propose([GOOD, BAD], NOW_S, None)

    assert proposal is not None
    assert proposal.fellow_id == "f2"
    assert proposal.words == "drain attic: graded F (12 of 100) for 5 min; a stage crashed"


def test_of_several_the_worst_is_proposed():
    worse = replace(BAD, fellow_id="f3", name="barn", score=3.0)

    assert propose([GOOD, BAD, worse], NOW_S, None).fellow_id == "f3"


def test_every_guard_keeps_it_in_service():
    assert propose([GOOD, replace(BAD, since_s=NOW_S - BAD_S + 1)], NOW_S, None) is None
    assert propose([GOOD, BAD], NOW_S, NOW_S - COOLDOWN_S + 1) is None
    assert propose([BAD], NOW_S, None) is None
    assert propose([replace(GOOD, is_connected=False), BAD], NOW_S, None) is None
    assert propose([replace(GOOD, is_draining=True), GOOD, BAD], NOW_S, None) is None
    assert propose([GOOD, replace(BAD, is_connected=False)], NOW_S, None) is None
    assert propose([replace(GOOD, band="D"), BAD], NOW_S, None) is None
    assert propose([GOOD, replace(BAD, band="")], NOW_S, None) is None
    assert propose([GOOD, BAD], NOW_S, NOW_S - COOLDOWN_S) is not None


candidates = st.builds(
    Candidate,
    fellow_id=st.uuids().map(str),
    name=st.text(max_size=3),
    band=st.sampled_from(["", "A", "B", "C", "D", "F"]),
    since_s=st.floats(0, NOW_S),
    score=st.floats(0, 100),
    is_connected=st.booleans(),
    is_draining=st.booleans(),
)


@given(st.lists(candidates, max_size=6), st.none() | st.floats(0, NOW_S))
def test_no_fleet_is_ever_left_without_a_healthy_machine(machines: list[Candidate], proposed_at_s: float | None):
    proposal = propose(machines, NOW_S, proposed_at_s)
    if proposal is None:
        return
    rest = [one for one in machines if one.fellow_id != proposal.fellow_id]

    assert any(one.is_connected and not one.is_draining and one.band in HEALTHY for one in rest)
    assert not any(one.is_draining for one in machines)
