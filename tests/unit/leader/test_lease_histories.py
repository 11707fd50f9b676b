"""Leases over random histories: heartbeats, broken links, deletes, a leader that stood still, all silent at once."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from swarm_core.clock import ManualClock
from swarm_leader.domain.leases import FellowState, Leases

LEASE_S = 9.0
SWEEP_S = 0.5
STANDSTILL_S = LEASE_S / 2  # between two judgements; after longer the leader distrusts itself
NAMES = ("attic", "barn", "cellar", "den")
names = st.sampled_from(NAMES)


@dataclass
class Granted:
    """What a fellow was promised last: it is not lost before. first_s: when the grant alone would end."""

    first_s: float
    safe_until_s: float
    is_linked: bool
    is_reported: bool = False


class LeaseHistories(RuleBasedStateMachine):
    """The model promises at least so much time to each, and remembers who was told of as lost."""

    @initialize(start_s=st.floats(0, 1e6))
    def begin(self, start_s: float) -> None:
        self.clock = ManualClock(monotonic_s=start_s)
        self.leases = Leases(self.clock, LEASE_S)
        self.promised: dict[str, Granted] = {}
        self.judged_s = start_s
        self.reported_count = 0
        self.leases.take_lost()

    def grant(self, name: str, length_s: float, is_linked: bool) -> None:
        until_s = self.clock.monotonic_s() + length_s
        self.promised[name] = Granted(until_s, until_s, is_linked)

    @rule(name=names)
    def heartbeat(self, name: str) -> None:
        self.leases.grant(name)
        self.grant(name, LEASE_S, is_linked=True)

    @rule(name=names, length_s=st.floats(LEASE_S, 30.0))
    def known_at_the_start_of_a_leader(self, name: str, length_s: float) -> None:
        self.leases.grant(name, is_linked=False, lease_s=length_s)
        self.grant(name, length_s, is_linked=False)

    @rule(name=names)
    def link_breaks(self, name: str) -> None:
        self.leases.break_link(name)
        if name in self.promised:
            self.promised[name].is_linked = False

    @rule(name=names)
    def deleted(self, name: str) -> None:
        self.leases.forget(name)
        self.promised.pop(name, None)

    @rule(seconds=st.floats(0.0, STANDSTILL_S))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.judge()

    @rule(seconds=st.floats(STANDSTILL_S + 0.01, 3 * LEASE_S) | st.floats(STANDSTILL_S + 0.01, 1e5))
    def the_leader_stands_still(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.judge()

    @rule(seconds=st.floats(0.0, 2.5 * LEASE_S), beating=st.sets(names))
    def a_while(self, seconds: float, beating: set[str]) -> None:
        """The leader judges as it does; some beat all the time, the others are silent."""
        for _ in range(int(seconds / SWEEP_S)):
            for name in sorted(beating & self.promised.keys()):
                self.heartbeat(name)
            self.clock.advance(SWEEP_S)
            self.judge()

    @rule(seconds=st.floats(LEASE_S, 3 * LEASE_S))
    def all_vanish(self, seconds: float) -> None:
        """Everybody was heard a moment ago. After two leases it is believed."""
        for name in list(self.promised):
            self.heartbeat(name)
        self.a_while(seconds, beating=set())
        if seconds > 2 * LEASE_S + 2 * SWEEP_S:
            assert all(one.is_reported for one in self.promised.values())

    def judge(self) -> list[str]:
        """One look of the sweep, held against what was promised."""
        now_s = self.clock.monotonic_s()
        unreported = {name: one for name, one in self.promised.items() if not one.is_reported}
        lost = self.leases.take_lost()
        stood_still = now_s - self.judged_s > STANDSTILL_S
        self.judged_s = now_s
        assert len(set(lost)) == len(lost)
        for name in lost:
            assert name in unreported, f"{name} was deleted, or told of already"
            assert unreported[name].safe_until_s <= now_s
        if stood_still:
            assert lost == []
            for one in unreported.values():
                one.safe_until_s = max(one.safe_until_s, now_s + LEASE_S)
        if len(lost) > 1 and len(lost) == len(unreported):
            assert any(one.first_s + LEASE_S <= now_s for one in unreported.values()), "all at once, at the first look"
        for name in lost:
            unreported[name].is_reported = True
        self.reported_count += len(lost)
        return lost

    @invariant()
    def nobody_is_lost_before_what_was_promised(self) -> None:
        now_s = self.clock.monotonic_s()
        for name in NAMES:
            state, one = self.leases.state(name), self.promised.get(name)
            if one is None:
                assert state is FellowState.LOST
            elif state is not FellowState.LOST:
                assert state is (FellowState.CONNECTED if one.is_linked else FellowState.SILENT)
            else:
                assert one.is_reported or one.safe_until_s <= now_s

    @invariant()
    def every_loss_is_counted(self) -> None:
        assert self.leases.lost_count == self.reported_count

    def teardown(self) -> None:
        """In the end one fellow beats, and whoever is silent is lost: each once, within the longest lease."""
        if not hasattr(self, "leases"):
            return
        silent = {name for name, one in self.promised.items() if not one.is_reported}
        lost = []
        for _ in range(int((30.0 + LEASE_S) / SWEEP_S)):
            self.heartbeat("the last one")
            self.clock.advance(SWEEP_S)
            lost += self.judge()
        assert sorted(lost) == sorted(silent)


TestLeaseHistories = LeaseHistories.TestCase
TestLeaseHistories.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("beats_on", [False, True])
def test_a_suspended_machine_is_lost_only_if_it_stays_away(beats_on: bool):
    """One of three sleeps for a moment more than a lease; the others go on."""
    clock = ManualClock(monotonic_s=random.uniform(0, 1e6))
    leases, lost = Leases(clock, LEASE_S), []
    for name in NAMES[:3]:
        leases.grant(name)
    for step in range(int((LEASE_S + 1) / SWEEP_S)):
        for name in NAMES[:2]:
            leases.grant(name)
        if beats_on and step == int((LEASE_S - 1) / SWEEP_S):
            leases.grant(NAMES[2])
        clock.advance(SWEEP_S)
        lost += leases.take_lost()

    assert lost == ([] if beats_on else [NAMES[2]])
