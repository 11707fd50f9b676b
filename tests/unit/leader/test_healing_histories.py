"""Healing under random histories of faults, also while it heals, and with leaders that are killed at any moment."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from swarm_leader.domain.records import PlacementState

from tests.unit.leader.healing_world import World

names = st.sampled_from("abcd")
moments = st.sampled_from([0.0, 0.03, 0.07, 0.12, 0.4, 1.0, 4.0, 12.0])


class Histories(RuleBasedStateMachine):
    """Whatever happens: one owner a stage and epoch, epochs grow (the disk checks both), and it serves in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

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
        for fellow in world.fellows.values():
            fellow.is_up, fellow.fails_loads = True, False
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
