"""Leases: who is there, silent or lost, on a clock of the test's own."""

import random

from swarm_core.clock import ManualClock
from swarm_leader.domain.leases import FellowState, Leases


def make_leases():
    """Leases of 15 s on a clock that starts anywhere."""
    clock = ManualClock(monotonic_s=random.uniform(0, 1e6))
    return Leases(clock, lease_s=15.0), clock


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
    clock.advance(20)
    assert leases.take_lost() == ["a"]
    assert leases.take_lost() == []

    leases.grant("a")
    clock.advance(20)

    assert leases.take_lost() == ["a"]


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
