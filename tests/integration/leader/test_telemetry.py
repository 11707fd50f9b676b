"""Telemetry over the leader's port: pools, grades, events and history of scripted fellows; and that it harms nobody."""

import asyncio
import time
from typing import Any

import aiosqlite
from silentswarm.core.v1 import telemetry_pb2 as told_pb2
from silentswarm.fellow.v1 import fellow_link_pb2
from silentswarm.leader.v1 import fleet_pb2, telemetry_pb2, telemetry_pb2_grpc
from swarm_core.errors import Reason
from swarm_leader.domain.telemetry_records import MINUTE_S, MetricRow

from tests.integration.leader.rig import WAIT_S, Rig, refusal_of, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined


class Telling(ScriptedFellow):
    """A fellow that tells of its health; `telemetry` is what it says."""

    def __init__(self, name: str, pool: str = "", **telemetry: Any) -> None:
        super().__init__(name)
        self.pool = pool
        self.telemetry = told_pb2.NodeTelemetry(**telemetry)

    def beat(self) -> None:
        stages = [held.status for held in self.held.values()]
        beat = fellow_link_pb2.Heartbeat(
            sequence=next(self._sequences), devices=self._devices(), stages=stages, telemetry=self.telemetry
        )
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(heartbeat=beat))

    def _register(self) -> fellow_link_pb2.Register:
        register = super()._register()
        register.pool = self.pool
        return register


async def metrics_of(rig: Rig, pool: str = "") -> telemetry_pb2.PoolMetrics:
    """A pool now."""
    stub = telemetry_pb2_grpc.TelemetryStub(rig.channel)
    return await stub.GetPoolMetrics(telemetry_pb2.GetPoolMetricsRequest(pool_id=pool))


async def graded(rig: Rig, name: str, signal: str = "") -> telemetry_pb2.NodeMetrics:
    """A machine once it has a grade, that lacks points for this signal when one is named."""
    until_s = time.monotonic() + WAIT_S
    while True:
        node = next(one for one in (await metrics_of(rig)).nodes if one.fellow_name == name)
        if node.HasField("grade") and (not signal or signal in [reason.signal for reason in node.grade.reasons]):
            return node
        assert time.monotonic() < until_s, f"{name} is never graded so: {node}"
        await asyncio.sleep(0.05)


async def events_of(rig: Rig, pool: str = "", wanted: str = "") -> list[telemetry_pb2.PoolEvent]:
    """Events of a pool, oldest first, once there is one of the wanted kind."""
    stub = telemetry_pb2_grpc.TelemetryStub(rig.channel)
    until_s = time.monotonic() + WAIT_S
    while True:
        answer = await stub.ListPoolEvents(telemetry_pb2.ListPoolEventsRequest(pool_id=pool))
        if not wanted or wanted in [event.kind for event in answer.events]:
            return list(reversed(answer.events))
        assert time.monotonic() < until_s, f"no event {wanted} in {answer.events}"
        await asyncio.sleep(0.05)


async def test_a_machines_own_figures_come_out_as_it_told_them(tmp_path):
    devices = [told_pb2.DeviceTelemetry(temperature_c=61.0, power_w=75.0, busy_share=0.5), told_pb2.DeviceTelemetry()]
    peers = [told_pb2.PeerRoundTrip(round_trip_ms=2.0), told_pb2.PeerRoundTrip(round_trip_ms=float("nan"))]
    kitchen = Telling("kitchen", devices=devices, peers=peers, leader_round_trip_ms=12.5, error_count=0)
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen, ScriptedFellow("attic")):
        told, silent = await graded(rig, "kitchen"), await graded(rig, "attic")
        listed = (await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest())).fellows

    assert (told.leader_round_trip_ms, told.peer_round_trip_ms, told.temperature_c, told.power_w) == (12.5, 2, 61, 75)
    assert (told.busy_share, told.errors, told.HasField("cpu_busy_share")) == (0.5, 0, False)
    assert told.availability > 0.5
    for name in ("leader_round_trip_ms", "peer_round_trip_ms", "temperature_c", "power_w", "busy_share", "errors"):
        assert not silent.HasField(name), f"{name} was never said"
    assert [(one.name, one.pool, one.grade.band in "ABCDF") for one in listed] == [
        ("attic", "main", True),
        ("kitchen", "main", True),
    ]
    assert all(0 < one.availability <= 1 for one in listed)


async def test_a_machine_that_crashes_is_graded_down_with_the_reason(tmp_path):
    kitchen = Telling("kitchen", stage_crash_count=0)
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        await until(lambda: rig.leader.watching.telemetry.pool("main").nodes[0].figures.availability is None, "joined")
        kitchen.beat()
        kitchen.telemetry.stage_crash_count = 2
        node = await graded(rig, "kitchen", "crashes")

    assert node.stage_crashes == 2
    assert [(reason.signal, reason.points) for reason in node.grade.reasons if reason.signal == "crashes"] == [
        ("crashes", 20.0)
    ]


async def test_pools_are_told_apart_and_one_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, Telling("kitchen"), Telling("barn", pool="garage")):
        in_main, in_garage = await metrics_of(rig), await metrics_of(rig, "garage")
        fellows = (await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest(pool="garage"))).fellows
        devices = (await rig.fleet.ListDevices(fleet_pb2.ListDevicesRequest(pool="garage"))).devices
        every = (await rig.fleet.ListDevices(fleet_pb2.ListDevicesRequest())).devices
        nowhere = await refusal_of(metrics_of(rig, "cellar"))

    assert ([node.fellow_name for node in in_main.nodes], in_main.pool_id) == (["kitchen"], "main")
    assert ([node.fellow_name for node in in_garage.nodes], in_garage.connected) == (["barn"], 1)
    assert [fellow.name for fellow in fellows] == [device.fellow_name for device in devices] == ["barn"]
    assert len(every) == 2
    assert nowhere.why is Reason.BAD_REQUEST
    assert "garage, main" in nowhere.message


async def test_a_pool_with_an_unlikely_name_is_refused(tmp_path):
    async with running_leader(tmp_path) as rig:
        barn = Telling("barn", pool="Garage/../")
        refusal = await refusal_of(barn.connect_only(rig.address))
        await barn.leave()

    assert refusal.why is Reason.BAD_REQUEST
    assert refusal.facts["field"] == "pool"


async def test_the_timeline_tells_what_became_of_a_machine(tmp_path):
    async with running_leader(tmp_path) as rig:
        kitchen, attic = ScriptedFellow("kitchen"), ScriptedFellow("attic")
        async with joined(rig.address, attic):
            await kitchen.join(rig.address)
            await events_of(rig, wanted="joined")
            await kitchen.leave()
            lost = await events_of(rig, wanted="lost")
            await rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id="kitchen"))
            deleted = await events_of(rig, wanted="deleted")
            left = await metrics_of(rig)

    assert [event.kind for event in lost if event.fellow_name == "kitchen"] == ["joined", "silent", "lost"]
    assert [event.kind for event in deleted if event.fellow_name == "kitchen"][-1] == "deleted"
    assert [event.sequence for event in deleted] == sorted(event.sequence for event in deleted)
    assert [node.fellow_name for node in left.nodes] == ["attic"]


async def test_a_watched_pool_is_told_again_and_again(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, Telling("kitchen")):
        stub = telemetry_pb2_grpc.TelemetryStub(rig.channel)
        call = stub.WatchPoolMetrics(telemetry_pb2.WatchPoolMetricsRequest(interval_s=1), timeout=WAIT_S)
        first, second = await call.read(), await call.read()
        call.cancel()
        too_often = await refusal_of(stub.WatchPoolMetrics(telemetry_pb2.WatchPoolMetricsRequest(interval_s=0.1)))

    assert first.nodes[0].observed_s <= second.nodes[0].observed_s
    assert first.pool_id == second.pool_id == "main"
    assert too_often.why is Reason.BAD_REQUEST


async def test_replies_count_in_their_pool(tmp_path):
    kitchen = Telling("kitchen")
    async with running_leader(tmp_path) as rig, joined(rig.address, kitchen):
        await rig.load_ready()
        for _ in range(3):
            assert text_of([event async for event in rig.generate()]) == "Hi there"
        serving = (await metrics_of(rig)).serving

    assert (serving.completed, serving.failed) == (3, 0)
    assert serving.tokens_per_s == 6 / 60
    assert serving.first_token_ms > 0


async def test_history_is_by_minute_or_hour_and_of_known_metrics_only(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, Telling("kitchen")):
        stub = telemetry_pb2_grpc.TelemetryStub(rig.channel)
        now_s = int(time.time())
        begin_s = now_s - now_s % MINUTE_S - 10 * MINUTE_S
        rows = [MetricRow(MINUTE_S, begin_s + MINUTE_S * n, "main", "", {"availability": n / 10}) for n in range(3)]
        of_one = MetricRow(MINUTE_S, begin_s, "main", next(iter(rig.leader.registry.all())).fellow_id, {"score": 70.0})
        await rig.leader.store.metrics.add([*rows, of_one])

        async def history(**request: Any) -> telemetry_pb2.MetricsHistory:
            return await stub.GetMetricsHistory(telemetry_pb2.GetMetricsHistoryRequest(**request))

        minutes = await history(metric="availability")
        by_name = await history(metric="score", fellow_id="kitchen")
        hours = await history(metric="availability", resolution="hour")
        unknown = await refusal_of(history(metric="mood"))

    assert [(point.at_s - begin_s, point.figure) for point in minutes.points] == [(0, 0.0), (60, 0.1), (120, 0.2)]
    assert [point.figure for point in by_name.points] == [70.0]
    assert (hours.resolution, list(hours.points)) == ("hour", [])
    assert unknown.why is Reason.BAD_REQUEST
    assert "availability, busy_share, completed" in unknown.message


async def test_a_database_that_takes_no_figures_costs_no_heartbeat_and_no_reply(tmp_path):
    """Its tables are gone, as on a disk that breaks: what waits to be written stays bounded, all else goes on."""
    async with running_leader(tmp_path) as rig:
        async with aiosqlite.connect(tmp_path / "leader.db") as database:
            await database.execute("DROP TABLE metric_rows")
            await database.execute("DROP TABLE node_events")
            await database.commit()
        async with joined(rig.address, Telling("kitchen")):
            await rig.load_ready()
            assert text_of([event async for event in rig.generate()]) == "Hi there"
            node = await graded(rig, "kitchen")
            stub = telemetry_pb2_grpc.TelemetryStub(rig.channel)
            refusal = await refusal_of(stub.ListPoolEvents(telemetry_pb2.ListPoolEventsRequest()))

    assert node.state == "connected"
    assert refusal.why is Reason.UNAVAILABLE
