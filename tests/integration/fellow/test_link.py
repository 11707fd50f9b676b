"""The control link against a real server: registration, heartbeats, redial, signals nobody knows."""

import os
import signal
from pathlib import Path

from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.fellow.running_fellow import running_fellow, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually


async def test_a_fellow_registers_with_its_hardware_and_capabilities(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_FELLOW_MEMORY_MB="100", SWARM_JOIN_TOKEN="jt-1"):
        register = (await leader.connection()).register

    assert register.name == "kitchen" and register.join_token == "jt-1" and len(register.identity) == 36
    assert register.hardware.cpu_count >= 1 and register.hardware.memory_total_bytes > 2**28
    assert register.hardware.devices[-1].kind == "cpu"
    assert register.hardware.devices[-1].memory_free_bytes <= 100 * 2**20
    assert register.capabilities.wire.version_max == 1 and "BF16" in register.capabilities.wire.dtypes
    assert register.capabilities.HasField("direct_link") and register.capabilities.HasField("ping")
    assert "llama" in register.capabilities.serve.model_types
    assert register.capabilities.HasField("maintenance") and not register.capabilities.HasField("serve_draft_model")


async def test_without_a_listening_host_direct_links_are_not_declared(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_RING_BIND_HOST=""):
        fellow = await leader.connection()
        done = await fellow.load(leader.models["tiny/one"].spec("p1"), listen=True)

    assert not fellow.register.capabilities.HasField("direct_link")
    assert list(done.ring_addresses) == []


async def test_a_withheld_capability_is_not_declared(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    async with running_fellow(leader.address, tmp_path, SWARM_FELLOW_DISABLE_CAPABILITIES="ping, serve_rewire"):
        declared = (await leader.connection()).register.capabilities

    assert not declared.HasField("ping") and not declared.HasField("serve_rewire")
    assert declared.HasField("serve")


async def test_heartbeats_count_up_and_carry_devices_and_stages(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(leader.models["tiny/one"].spec("p1"))
        await eventually(lambda: fellow.stages(), "a heartbeat carried the stage")

    assert [beat.sequence for beat in fellow.heartbeats] == list(range(1, len(fellow.heartbeats) + 1))
    assert fellow.heartbeats[-1].devices[0].HasField("memory_free_bytes")
    assert fellow.stages()[0].spec.placement_id == "p1" and fellow.stages()[0].HasField("memory_bytes") is False


async def test_a_fellow_comes_back_to_a_restarted_leader_with_the_stage_it_holds(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await fellow.load(leader.models["tiny/one"].spec("p1"), listen=True)
        pids = stage_pids()
        await leader.stop()
        await leader.start()
        again = await leader.connection(2)

        assert stage_pids() == pids
        assert again.register.identity == fellow.register.identity
        assert [held.status.spec.placement_id for held in again.register.held] == ["p1"]
        assert list(again.register.held[0].ring_addresses) == ["127.0.0.1:4242"]
        await eventually(lambda: again.stages(), "heartbeats carry it again")
        stream = await leader.stream(2)
        stream.request("r1", "count 3")
        assert (await stream.reply("r1"))[-1].done.completion_tokens == 3


async def test_a_link_that_broke_while_the_leader_was_away_is_told_until_a_newer_epoch(
    tmp_path: Path,
):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path) as fellow_process:
        await (await leader.connection()).load(leader.models["tiny/one"].spec("p1", epoch=3))
        await leader.stop()
        os.kill(stage_pids()[0], signal.SIGUSR1)
        await eventually(lambda: fellow_process.table.find("p1").broken, "the fellow heard of the broken link")
        await leader.start()
        again = await leader.connection(2)
        await eventually(lambda: again.events, "the broken link was told")
        await again.ask(wire=link_pb2.WireSignal(placement_id="p1", epoch=4))
        await leader.stop()
        await leader.start()
        rewired = await leader.connection(3)
        await eventually(lambda: rewired.stages(), "a heartbeat came, which follows what is told at the beginning")

    assert [event.kind for event in again.events] == [link_pb2.STAGE_EVENT_KIND_LINK_BROKEN]
    assert again.events[0].spec.epoch == 3 and again.events[0].message == "link broke"
    assert rewired.register.held[0].status.spec.epoch == 4 and not rewired.events


async def test_held_stages_the_leader_no_longer_wants_are_ended_after_the_reconnect(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        await (await leader.connection()).load(leader.models["tiny/one"].spec("p1"))
        await leader.stop()
        leader.unwanted = [leader.models["tiny/one"].spec("p1")]
        await leader.start()
        again = await leader.connection(2)

        await eventually(lambda: stage_pids() == [], "the unwanted stage ended")
        await eventually(lambda: again.heartbeats and not again.stages(), "heartbeats no longer carry it")

        assert again.register.held[0].status.spec.placement_id == "p1"


async def test_a_load_that_runs_when_the_link_breaks_is_undone(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with running_fellow(leader.address, tmp_path, habits="hangs-in-load") as fellow_process:
        fellow = await leader.connection()
        fellow.send(load=link_pb2.LoadSignal(spec=leader.models["tiny/one"].spec("p1")))
        await eventually(lambda: any(p.step == "build" for p in fellow.progress), "the stage builds")
        await leader.stop()
        await eventually(lambda: stage_pids() == [], "the stage ended")
        await leader.start()

        assert not (await leader.connection(2)).register.held
        assert fellow_process.table.loaded() == []


async def test_an_unknown_kind_of_signal_is_answered_with_a_failure_and_the_link_lives(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        unknown = await fellow.ask()
        ping = await fellow.ask(ping=link_pb2.PingSignal())

    assert unknown.failure.reason == reason_pb2.REASON_BAD_REQUEST
    assert ping.WhichOneof("outcome") == "acknowledged"
    assert len(leader.connections) == 1
    assert all(len(answers) == 1 for answers in fellow.results.values())


async def test_the_node_credential_is_presented_on_other_calls(tmp_path: Path):
    leader = ScriptedLeader()
    leader.node_credential = "nc-7"
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        await leader.stream()

    assert leader.credentials_seen == ["Bearer nc-7"]
