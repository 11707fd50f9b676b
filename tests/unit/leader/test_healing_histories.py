"""Healing under random histories of faults, also while it heals, and with leaders that are killed at any moment."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from swarm_leader.domain.records import PlacementState, Transport

from tests.unit.leader.healing_world import LINE_CUT, LINE_STALLED, LINE_UP, World

names = st.sampled_from("abcd")
moments = st.sampled_from([0.0, 0.03, 0.07, 0.12, 0.4, 1.0, 4.0, 12.0])


class Histories(RuleBasedStateMachine):
    """Whatever happens: one owner a stage and epoch, epochs grow (the disk checks both), and it serves in the end."""

    @initialize(transport=st.sampled_from([Transport.AUTO, Transport.TUNNEL]))
    def it_serves(self, transport):
        self.world = World(transport=transport)

    @rule(name=names, moment=moments)
    def a_stage_crashes(self, name, moment):
        fellow = self.world.fellows[name]
        for placement_id in list(fellow.held):
            self.world.do(fellow.crash, placement_id)
        self.world.wait(moment)

    @rule(name=names, moment=moments)
    def a_machine_dies(self, name, moment):
        self.world.do(self.world.fellows[name].die, wait_s=moment)

    @rule(name=names, moment=moments)
    def a_machine_loses_the_leader(self, name, moment):
        self.world.do(self.world.fellows[name].cut, wait_s=moment)

    @rule(name=names, moment=moments)
    def a_machine_comes(self, name, moment):
        fellow = self.world.fellows[name]
        fellow.is_up = True
        if not fellow.is_connected:
            self.world.do(fellow.join, wait_s=moment)

    @rule(name=names, peer=st.integers(0, 2), moment=moments)
    def a_link_breaks(self, name, peer, moment):
        fellow = self.world.fellows[name]
        for placement_id in list(fellow.held):
            self.world.do(fellow.complain, placement_id, peer)
        self.world.wait(moment)

    @rule(name=names, line=st.sampled_from([LINE_CUT, LINE_STALLED]), moment=moments)
    def a_line_is_lost(self, name, line, moment):
        self.world.do(self.world.fellows[name].lose_line, line, wait_s=moment)

    @rule(name=names, moment=moments)
    def a_line_is_mended(self, name, moment):
        self.world.fellows[name].line = LINE_UP
        self.world.wait(moment)

    @rule(moment=moments)
    def the_relay_dies(self, moment):
        self.world.do(self.world.lose_relay, wait_s=moment)

    @rule(moment=moments)
    def the_relay_is_back(self, moment):
        self.world.has_relay = True
        self.world.wait(moment)

    @rule(name=names, fails=st.booleans())
    def a_disk_fills_up_or_is_emptied(self, name, fails):
        self.world.fellows[name].fails_loads = fails

    @precondition(lambda self: not any(one.record.draining for one in self.world.leader.registry.all()))
    @rule(name=names, moment=moments)
    def a_machine_is_drained(self, name, moment):
        fellow = self.world.leader.registry.get(f"id-{name}")
        if fellow is not None:
            self.world.run(self.world.leader.draining._set(fellow, True))
        self.world.wait(moment)

    @rule(moment=moments)
    def the_leader_is_killed_and_starts(self, moment):
        self.world.restart_leader()
        self.world.wait(moment)

    def teardown(self):
        """With every machine back and well, the model serves, and nobody holds what the record does not say."""
        world = self.world
        world.has_relay = True
        for fellow in world.fellows.values():
            fellow.is_up, fellow.fails_loads, fellow.line = True, False, LINE_UP
            if not fellow.is_connected:
                world.do(fellow.join)
        for one in world.leader.registry.all():
            world.run(world.leader.draining._set(one, False))
        world.wait(90.0)
        try:
            placement = world.placement
            assert placement.state is PlacementState.READY, placement.record.reason
            assert not placement.is_healing and placement.arriving == {}
            held = {
                (fellow.fellow_id, placement_id, spec.stage_index, spec.epoch)
                for fellow in world.fellows.values()
                for placement_id, spec in fellow.held.items()
            }
            record = placement.record
            wanted = {(one.fellow_id, record.placement_id, one.stage_index, record.epoch) for one in record.stages}
            assert held == wanted
            assert [one for one in world.disk.incidents.values() if one.is_open] == []
        finally:
            world.close()


Histories.TestCase.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestHistories(Histories.TestCase):
    """Asserts in its teardown."""


def test_a_crash_in_a_whole_fleet_is_healed_within_a_second():
    world = World()
    before = world.placement.record

    world.do(world.fellows["b"].crash, before.placement_id, wait_s=1.0)
    after = world.placement.record

    assert (world.placement.state, after.placement_id) == (PlacementState.READY, before.placement_id)
    assert [stage.fellow_id for stage in after.stages] == [stage.fellow_id for stage in before.stages]
    world.close()


def test_a_machine_that_dies_is_replaced_within_a_second():
    world = World()
    before = world.placement.record

    world.do(world.fellows["b"].die, wait_s=1.0)

    assert world.placement.state is PlacementState.READY
    holders = {stage.fellow_id for stage in world.placement.record.stages}
    assert holders == {*(stage.fellow_id for stage in before.stages), "id-d"} - {"id-b"}
    world.close()


def lost_line(line, count=4):
    """A ring by the relay, of which stage 1's fellow loses its line: the world, its name and the ring's record."""
    world = World(count, Transport.TUNNEL)
    record = world.placement.record
    name = world.leader.registry.name_of(record.stages[1].fellow_id)
    world.do(world.fellows[name].lose_line, line)
    return world, name, record


def test_a_line_to_the_relay_that_is_down_for_two_seconds_costs_no_stage_its_place():
    world, name, before = lost_line(LINE_CUT)

    world.wait(2.0)
    world.fellows[name].line = LINE_UP
    world.wait(1.0)

    after = world.placement.record
    assert after.state is PlacementState.READY
    assert [one.fellow_id for one in after.stages] == [one.fellow_id for one in before.stages]
    world.close()


@pytest.mark.parametrize(("line", "within_s"), [(LINE_CUT, 4.5), (LINE_STALLED, 5.0)])
def test_a_stage_whose_line_to_the_relay_stays_away_goes_to_another_fellow_and_no_other_moves(line, within_s):
    world, name, before = lost_line(line)

    world.wait(within_s)

    after = world.placement.record
    assert (after.state, after.placement_id) == (PlacementState.READY, before.placement_id)
    holders = [one.fellow_id for one in before.stages]
    assert [one.fellow_id for one in after.stages] == [holders[0], "id-d", holders[2]]
    (incident,) = world.disk.incidents.values()
    assert f"stage 1 on {name} is cut off from its ring" in " ".join(line.what for line in incident.log)
    world.close()


def test_where_nobody_else_can_hold_what_is_cut_off_the_rest_of_the_ring_loads_the_model_without_it():
    world, name, before = lost_line(LINE_CUT, count=3)

    world.wait(15.0)

    after = world.placement.record
    assert after.state is PlacementState.READY and after.placement_id != before.placement_id
    assert f"id-{name}" not in [one.fellow_id for one in after.stages]
    world.close()


@pytest.mark.parametrize("away_s", [0.25, 3.0, 7.0])
def test_a_relay_that_is_away_for_a_while_is_waited_for_and_nothing_moves(away_s):
    world = World(transport=Transport.TUNNEL)
    before = world.placement.record

    world.do(world.lose_relay, wait_s=away_s)
    world.has_relay = True
    world.wait(1.0)

    after = world.placement.record
    assert (after.state, after.placement_id) == (PlacementState.READY, before.placement_id)
    assert [one.fellow_id for one in after.stages] == [one.fellow_id for one in before.stages]
    world.close()


def test_a_machine_that_tells_of_a_stage_while_it_is_handed_over_to_it_is_not_told_to_end_it():
    """Its heartbeat comes between the end of its load and the record that says that the stage is its own."""
    world = World()
    leader, receiver = world.leader, world.fellows["d"]
    world.disk.meanwhile = lambda: receiver.beat(leader, leader.registry.get("id-d"))

    world.run(leader.draining.drain("b"))
    world.wait(10.0)
    (incident,) = world.disk.incidents.values()

    assert {stage.fellow_id for stage in world.placement.record.stages} == {"id-a", "id-c", "id-d"}
    assert world.placement.state is PlacementState.READY and receiver.held
    assert not [line.what for line in incident.log if "loads it" in line.what]
    world.close()
