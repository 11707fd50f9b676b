"""Fellows join, come back, are renamed, refused, pinged, released and deleted."""

import asyncio

import grpc
import pytest
from silentswarm.fellow.v1 import fellow_link_pb2, fellow_link_pb2_grpc
from silentswarm.leader.v1 import fleet_pb2
from swarm_core.errors import FellowLost, Reason
from swarm_leader.flows.network import Network
from swarm_leader.rpc.fellow_link import FellowLinkServicer
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of

from tests.integration.leader.rig import refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, declare, joined


async def list_fellows(rig):
    """Name -> fellow."""
    answer = await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest())
    return {fellow.name: fellow for fellow in answer.fellows}


async def test_a_fellow_joins_and_is_listed_with_its_live_memory(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.free_bytes = 777
        await until(
            lambda: rig.leader.registry.find("kitchen").hardware.devices[0].memory_free_bytes == 777, "heartbeat"
        )

        listed = (await list_fellows(rig))["kitchen"]
        devices = (await rig.fleet.ListDevices(fleet_pb2.ListDevicesRequest())).devices

        assert listed.state == "connected"
        assert listed.capabilities.serve_n_stage.stage_count_max == 8
        assert 0 <= listed.heartbeat_age_s < 5
        assert kitchen.registered.heartbeat_ms == 200
        assert kitchen.registered.lease_ms == 1500
        assert [(device.fellow_name, device.device.memory_free_bytes) for device in devices] == [("kitchen", 777)]


async def test_a_name_that_is_taken_gets_a_number_and_keeps_it(tmp_path):
    first, second = ScriptedFellow("kitchen"), ScriptedFellow("kitchen")
    second.identity = "another machine"
    async with running_leader(tmp_path) as rig, joined(rig.address, first, second):
        assert second.registered.name == "kitchen-2"

        fellow_id = second.registered.fellow_id
        await first.leave()
        await second.leave()
        await second.join(rig.address)

        assert (second.registered.name, second.registered.fellow_id) == ("kitchen-2", fellow_id)


async def test_the_same_identity_again_replaces_its_ghost(tmp_path):
    """A process that opens its link again, before the leader has noticed that the older one is dead."""
    old, new = ScriptedFellow("kitchen"), ScriptedFellow("kitchen")
    old.process_nonce = new.process_nonce = "this run"
    async with running_leader(tmp_path) as rig, joined(rig.address, old):
        new.credential = old.credential
        async with joined(rig.address, new):
            await until(lambda: old.error is not None, "the older stream ends")

            assert error_of(old.error).why is Reason.CONFLICT
            assert new.registered.fellow_id == old.registered.fellow_id
            assert new.is_connected
            assert list(await list_fellows(rig)) == ["kitchen"]


async def test_a_broken_link_is_silent_at_once_and_lost_after_the_lease(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await kitchen.leave()
        await until(lambda: not rig.leader.registry.is_connected(kitchen.registered.fellow_id), "the link is gone")
        assert (await list_fellows(rig))["kitchen"].state == "silent"

        fellow = rig.leader.registry.find("kitchen")
        await until(lambda: rig.leader.registry.state(fellow) == "lost", "the lease is over")

        assert (await list_fellows(rig))["kitchen"].state == "lost"


async def test_a_silent_fellow_with_an_open_link_is_cut_off_after_the_lease(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.beats = False

        await until(lambda: kitchen.error is not None, "the link is ended")

        assert error_of(kitchen.error).why is Reason.FELLOW_LOST


async def test_a_wrong_join_token_is_refused_and_the_right_one_let_in(tmp_path):
    async with running_leader(tmp_path, join_token="s3cret") as rig:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ScriptedFellow("kitchen", join_token="wrong").join(rig.address)
        assert error_of(refused.value).why is Reason.UNAUTHENTICATED
        assert "s3cret" not in str(refused.value)

        async with joined(rig.address, ScriptedFellow("kitchen", join_token="s3cret")) as (kitchen,):
            assert kitchen.registered.fellow_id


async def test_a_first_message_that_is_no_registration_is_refused(tmp_path):
    async def wrong():
        yield fellow_link_pb2.ConnectRequest(heartbeat=fellow_link_pb2.Heartbeat(sequence=1))

    async with running_leader(tmp_path) as rig:
        channel = dial(rig.address)
        refusal = await refusal_of(fellow_link_pb2_grpc.FellowLinkStub(channel).Connect(wrong()))
        await channel.close()

    assert refusal.why is Reason.BAD_REQUEST


async def test_ping_goes_there_and_back(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        answer = await rig.fleet.PingFellow(fleet_pb2.PingFellowRequest(fellow_id="kitchen"))

        assert 0 < answer.round_trip_ms < 5000
        assert kitchen.kinds() == ["ping"]


async def test_a_fellow_that_declares_no_ping_is_never_sent_one(tmp_path):
    old = ScriptedFellow("old", capabilities=declare(ping=None))
    async with running_leader(tmp_path) as rig, joined(rig.address, old):
        refusal = await refusal_of(rig.fleet.PingFellow(fleet_pb2.PingFellowRequest(fellow_id="old")))

        assert refusal.why is Reason.CAPABILITY_MISSING
        assert refusal.facts == {"fellow": "old", "capability": "ping"}
        assert old.kinds() == []


async def test_an_unknown_fellow_is_refused_with_those_that_exist(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        refusal = await refusal_of(rig.fleet.PingFellow(fleet_pb2.PingFellowRequest(fellow_id="cellar")))

        assert refusal.why is Reason.FELLOW_NOT_FOUND
        assert "kitchen" in refusal.message


async def test_release_ends_every_stage_and_keeps_the_link(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()

        await rig.fleet.ReleaseFellow(fleet_pb2.ReleaseFellowRequest(fellow_id="kitchen"))

        status = await rig.until_state("FAILED")
        assert status.reason == "fellow kitchen was released on request; load it again with: swarm model-load tiny"
        assert kitchen.held == {}
        assert kitchen.is_connected


async def test_a_deleted_fellow_is_forgotten_and_may_join_again_as_itself(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        fellow_id = kitchen.registered.fellow_id

        await rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id=fellow_id))

        await until(lambda: kitchen.error is not None, "the link is ended")
        assert await list_fellows(rig) == {}
        await kitchen.leave()
        await kitchen.join(rig.address)
        assert kitchen.registered.fellow_id == fellow_id
        assert list(await list_fellows(rig)) == ["kitchen"]


async def test_fellows_are_remembered_over_a_restart(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")):
        before = (await list_fellows(rig))["kitchen"]
    async with running_leader(tmp_path) as rig:
        after = (await list_fellows(rig))["kitchen"]

    assert (after.fellow_id, after.joined_s, after.state) == (before.fellow_id, before.joined_s, "silent")
    assert after.capabilities == before.capabilities


class Call:
    """A call as a servicer sees it, of a client that does not ask for answers."""

    def peer(self):
        """Where it comes from."""
        return "here"

    def add_done_callback(self, callback):
        """Never called: the call goes on."""


async def test_a_heartbeat_read_after_the_link_ended_grants_no_lease(tmp_path):
    """The leader gave the link up while heartbeats waited in its buffers."""
    may_go_on, is_read = asyncio.Event(), asyncio.Event()

    async def requests():
        yield fellow_link_pb2.ConnectRequest(register=fellow_link_pb2.Register(identity="i", name="kitchen"))
        await may_go_on.wait()
        for sequence in (1, 2, 3):
            yield fellow_link_pb2.ConnectRequest(heartbeat=fellow_link_pb2.Heartbeat(sequence=sequence))
        is_read.set()
        await asyncio.Event().wait()

    async with running_leader(tmp_path) as rig:
        leader = rig.leader
        telemetry, network = leader.watching.telemetry, Network(leader.registry, leader.board)
        beats = (5.0, 15.0)
        servicer = FellowLinkServicer(
            leader.joining, leader.registry, leader.signals, leader.faults, leader.identity, *beats, telemetry, network
        )
        answers = servicer.Connect(requests(), Call())
        await anext(answers)
        fellow = leader.registry.find("kitchen")

        fellow.link.end(FellowLost("no heartbeat", fellow="kitchen"))
        may_go_on.set()
        await is_read.wait()

        assert leader.registry.state(fellow) == "silent"
        assert fellow.heartbeat_at_s is None
        await answers.aclose()


async def test_twenty_restarts_of_a_machine_leave_one_row(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        for number in range(20):
            await kitchen.leave()
            kitchen.process_nonce = f"run {number}"
            await kitchen.join(rig.address)

        listed = await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest())
        assert [(one.name, one.state) for one in listed.fellows] == [("kitchen", "connected")]
        assert len(await rig.leader.store.fellows.all()) == 1


async def test_a_heartbeat_that_races_with_a_delete_revives_nobody(tmp_path):
    kitchen = ScriptedFellow("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        deleting = rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id="kitchen"))
        while not deleting.done():
            kitchen.beat()
            await asyncio.sleep(0.001)
        kitchen.beat()
        await until(lambda: not kitchen.is_connected, "its link ends")

        assert list((await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest())).fellows) == []
        assert await rig.leader.store.fellows.all() == []
