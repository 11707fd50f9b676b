"""What a fellow finds out while it is connected: how far its leader is, how wide the way, how fast it multiplies."""

import json
from pathlib import Path

from tests.integration.fellow.running_fellow import running_fellow
from tests.integration.fellow.scripted_leader import FellowConnection, ScriptedLeader, TinyModel, eventually


def round_trip_ms(fellow: FellowConnection) -> float | None:
    """As the newest heartbeat says; None when it does not."""
    if not fellow.heartbeats or not fellow.heartbeats[-1].telemetry.HasField("leader_round_trip_ms"):
        return None
    return fellow.heartbeats[-1].telemetry.leader_round_trip_ms


async def test_the_way_to_the_leader_is_measured_after_connecting_and_told_at_the_next_registration(tmp_path: Path):
    leader = ScriptedLeader()
    leader.answers_health = True
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        first = await leader.connection()
        await eventually(lambda: round_trip_ms(first) is not None, "a heartbeat said how far the leader is")
        measured_ms = round_trip_ms(first)
        first.down.put_nowait(None)
        second = await leader.connection(2)

    assert not first.register.hardware.HasField("leader_round_trip_ms")
    assert measured_ms is not None and 0 < measured_ms < 5_000
    assert 0 < second.register.hardware.leader_round_trip_ms < 5_000
    assert not second.register.hardware.HasField("leader_up_bytes_per_s")


async def test_a_leader_without_a_health_service_stays_at_an_unknown_distance(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        fellow = await leader.connection()
        await eventually(lambda: len(fellow.heartbeats) >= 5, "heartbeats came")

    assert round_trip_ms(fellow) is None
    assert len(leader.connections) == 1


async def test_how_wide_the_way_from_the_leader_is_shows_by_long_transfers_alone(tmp_path: Path):
    model = TinyModel()
    model.tensors["lm_head.weight"] = bytes(range(256)) * (5 * 2**20 // 256)
    leader = ScriptedLeader(model)
    await leader.start()
    async with running_fellow(leader.address, tmp_path):
        first = await leader.connection()
        await first.load(model.spec("p1"))
        first.down.put_nowait(None)
        second = await leader.connection(2)
        await second.load(model.spec("p2", stage_index=1, layer_start=2, layer_stop=4))
        second.down.put_nowait(None)
        third = await leader.connection(3)

    assert not second.register.hardware.HasField("leader_down_bytes_per_s")
    assert 1e5 < third.register.hardware.leader_down_bytes_per_s < 1e11


async def test_products_are_measured_once_and_told_in_later_heartbeats_and_after_a_restart(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    wanted = {"SWARM_FELLOW_BENCHMARK": "auto", "SWARM_STAGE_THREADS": "1", "SWARM_STAGE_DEVICE": "cpu"}
    async with running_fellow(leader.address, tmp_path, **wanted):
        fellow = await leader.connection()
        await eventually(
            lambda: fellow.heartbeats and fellow.heartbeats[-1].devices[0].HasField("float32_flops"), "it was measured"
        )
    kept = json.loads((tmp_path / "state" / "benchmark.json").read_text())
    async with running_fellow(leader.address, tmp_path, **wanted):
        again = await leader.connection(2)
        await eventually(
            lambda: again.heartbeats and again.heartbeats[-1].devices[0].HasField("float32_flops"), "it was kept"
        )

    (figures,) = kept.values()
    assert fellow.heartbeats[-1].devices[0].float32_flops == figures["float32_flops"] > 1e8
    assert again.heartbeats[-1].devices[0].float32_flops == figures["float32_flops"]
    assert not fellow.register.hardware.devices[0].HasField("float32_flops")
