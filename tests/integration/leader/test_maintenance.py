"""Purging and updating a fellow: told to those who can, with its models given up as after a release."""

import pytest
from silentswarm.core.v1 import capabilities_pb2
from silentswarm.fellow.v1 import fellow_link_pb2
from silentswarm.leader.v1 import fleet_pb2
from swarm_core.errors import Reason

from tests.integration.leader.rig import Rig, refusal_of, running_leader
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined


class Maintained(ScriptedFellow):
    """One that declares maintenance, and ends its stages for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, capabilities=declare(maintenance=capabilities_pb2.Maintenance()))

    async def _obey(self, signal: fellow_link_pb2.Signal) -> None:
        if signal.WhichOneof("kind") in ("purge", "update"):
            self.held.clear()
        await super()._obey(signal)


def ask(rig: Rig, act: str, fellow: str):
    """PurgeFellow or UpdateFellow."""
    if act == "purge":
        return rig.fleet.PurgeFellow(fleet_pb2.PurgeFellowRequest(fellow_id=fellow))
    return rig.fleet.UpdateFellow(fleet_pb2.UpdateFellowRequest(fellow_id=fellow))


@pytest.mark.parametrize("act", ["purge", "update"])
async def test_its_stages_end_and_its_models_say_why(tmp_path, act: str):
    async with running_leader(tmp_path) as rig, joined(rig.address, Maintained("kitchen")) as (kitchen,):
        await rig.load_ready()
        await ask(rig, act, "kitchen")
        status = await rig.until_state("FAILED")

    assert status.reason == f"fellow kitchen was {act}d on request; load it again with: swarm model-load tiny"
    assert act in kitchen.kinds() and kitchen.held == {}


@pytest.mark.parametrize("act", ["purge", "update"])
async def test_a_fellow_that_does_not_declare_maintenance_is_refused_by_name_and_keeps_its_stages(tmp_path, act: str):
    old = ScriptedFellow("old")
    async with running_leader(tmp_path) as rig, joined(rig.address, old):
        await rig.load_ready()
        refusal = await refusal_of(ask(rig, act, "old"))
        status = await rig.get()

    assert refusal.why is Reason.CAPABILITY_MISSING
    assert refusal.facts == {"fellow": "old", "capability": "maintenance"}
    assert act not in old.kinds() and old.held and status.reason == ""


@pytest.mark.parametrize("act", ["purge", "update"])
async def test_an_unknown_fellow_and_one_that_is_not_connected_are_refused(tmp_path, act: str):
    async with running_leader(tmp_path) as rig, joined(rig.address, Maintained("kitchen")) as (kitchen,):
        unknown = await refusal_of(ask(rig, act, "cellar"))
        await kitchen.leave()
        gone = await refusal_of(ask(rig, act, "kitchen"))

    assert (unknown.why, gone.why) == (Reason.FELLOW_NOT_FOUND, Reason.FELLOW_LOST)
