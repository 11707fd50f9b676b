"""Leases: who is there, silent or lost, on a clock of the test's own."""

import random

from swarm_core.clock import ManualClock
from swarm_leader.domain.leases import FellowState, Leases


def make_leases():
    """Leases of 15 s on a clock that starts anywhere."""
    clock = ManualClock(monotonic_s=random.uniform(0, 1e6))
    return Leases(clock, lease_s=15.0), clock


def judge_over(leases, clock, seconds, step_s=0.5):
    """Time passes and the leader judges as it does; who was lost, in order."""
    lost = []
    for _ in range(int(seconds / step_s)):
        clock.advance(step_s)
        lost += leases.take_lost()
    return lost


def test_a_fellow_is_connected_until_its_lease_is_over():
    leases, clock = make_leases()
    leases.grant("a")

    clock.advance(14.9)
    assert leases.state("a") is FellowState.CONNECTED
    clock.advance(0.2)
    assert leases.state("a") is FellowState.LOST


def test_a_heartbeat_gives_a_whole_lease_again():
    leases, clock = make_leases()
    leases.grant("a")
    clock.advance(10)
    leases.grant("a")

    clock.advance(10)

    assert leases.state("a") is FellowState.CONNECTED
    assert leases.take_lost() == []


def test_a_broken_link_is_silent_at_once_and_lost_only_later():
    leases, clock = make_leases()
    leases.grant("a")

    leases.break_link("a")

    assert leases.state("a") is FellowState.SILENT
    clock.advance(15.1)
    assert leases.take_lost() == ["a"]


def test_a_lost_fellow_is_reported_once_per_lease():
    leases, clock = make_leases()
    leases.grant("a")
    assert judge_over(leases, clock, 40) == ["a"]

    leases.grant("a")

    assert judge_over(leases, clock, 40) == ["a"]


def test_a_leader_that_stood_still_loses_nobody_and_then_judges_as_ever():
    leases, clock = make_leases()
    leases.grant("a")
    leases.grant("b", is_linked=False)
    leases.take_lost()

    clock.advance(60)
    assert leases.take_lost() == []
    assert leases.state("a") is FellowState.CONNECTED
    assert judge_over(leases, clock, 14) == []
    leases.grant("a")

    assert judge_over(leases, clock, 2) == ["b"]


def test_a_short_pause_gives_a_whole_lease_too():
    leases, clock = make_leases()
    leases.grant("a")
    judge_over(leases, clock, 5)

    clock.advance(9)
    leases.take_lost()

    assert judge_over(leases, clock, 14) == []
    assert judge_over(leases, clock, 2) == ["a"]


def test_when_all_would_be_lost_at_once_each_gets_one_lease_more():
    leases, clock = make_leases()
    leases.grant("a")
    leases.grant("b")

    assert judge_over(leases, clock, 29) == []
    assert judge_over(leases, clock, 2) == ["a", "b"]


def test_all_that_fall_silent_together_keep_their_leases_though_these_end_one_after_the_other():
    """Each had its heartbeat at another moment of the same period; the network of the leader was away for 13 s."""
    leases, clock = make_leases()
    for name in "abc":
        leases.grant(name)
        clock.advance(5 / 3)

    assert judge_over(leases, clock, 20) == []
    leases.grant("b")
    assert sorted(judge_over(leases, clock, 14)) == ["a", "c"]


def test_all_but_one_that_returns_are_lost_after_the_second_lease():
    leases, clock = make_leases()
    for fellow_id in ("a", "b", "c"):
        leases.grant(fellow_id)
    judge_over(leases, clock, 20)
    leases.grant("b")

    assert judge_over(leases, clock, 12) == ["a", "c"]


def test_a_fellow_nobody_heard_of_is_lost_and_not_reported():
    leases, _ = make_leases()

    assert leases.state("a") is FellowState.LOST
    assert leases.take_lost() == []


def test_a_longer_lease_can_be_granted_for_a_start():
    leases, clock = make_leases()
    leases.grant("a", is_linked=False, lease_s=30.0)

    clock.advance(29)

    assert leases.state("a") is FellowState.SILENT
    clock.advance(2)
    assert leases.take_lost() == ["a"]


def test_a_deleted_fellow_is_forgotten():
    leases, clock = make_leases()
    leases.grant("a")
    leases.forget("a")

    clock.advance(20)

    assert leases.take_lost() == []
