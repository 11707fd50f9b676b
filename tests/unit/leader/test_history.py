"""Figures are kept by the minute and the hour, and nothing that keeps them can hurt who is measured."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from silentswarm.core.v1 import capabilities_pb2, hardware_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import ManualClock
from swarm_core.errors import DiskFull, FellowLost
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, Outcome
from swarm_leader.domain.leases import Leases
from swarm_leader.domain.records import FellowRecord, PlacementRecord, PlacementState, StageRecord, Transport
from swarm_leader.domain.telemetry_records import HOUR_S, MINUTE_S
from swarm_leader.flows.board import Board
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.signals import ControlLink
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.store import Store, open_store
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.telemetry.history import History
from swarm_leader.telemetry.incidents import ToldIncidents
from swarm_leader.telemetry.replacement import Replace
from swarm_leader.telemetry.replacing import NodeReplacing
from swarm_leader.telemetry.serving import Reply
from swarm_leader.telemetry.timeline import AGAIN_S, WAITING_MAX, Timeline

HOUR = 1_766_001_600
BEAT_S = 5.0


class NoClock(ManualClock):
    """A clock that fails whoever asks it, once it is broken."""

    broken = False

    def monotonic_s(self) -> float:
        if self.broken:
            raise OSError("no time")
        return super().monotonic_s()


def machine(name: str = "kitchen", pool: str = "main") -> Fellow:
    """A machine that has joined."""
    record = FellowRecord(f"id-{name}", f"identity-{name}", name, "0", b"", b"", 0.0, pool=pool)
    return Fellow(record, hardware_pb2.Hardware(), capabilities_pb2.Capabilities(), Capabilities())


def watching(store: Store, clock: ManualClock) -> tuple[Registry, Telemetry]:
    """Telemetry over an empty fleet."""
    registry = Registry(store.fellows, Leases(clock, 3 * BEAT_S), clock)
    return registry, Telemetry(registry, Board(store.ledger), clock, BEAT_S)


def join(registry: Registry, telemetry: Telemetry, fellow: Fellow) -> None:
    """Let it in."""
    registry.put(fellow)
    registry.leases.grant(fellow.fellow_id)
    telemetry.take_registered(fellow)


def beat(registry: Registry, telemetry: Telemetry, fellow: Fellow, **told: float) -> None:
    """Its heartbeat."""
    registry.take_heartbeat(fellow, [], [])
    heartbeat = link_pb2.Heartbeat()
    for name, figure in told.items():
        setattr(heartbeat.telemetry, name, figure)
    telemetry.take_heartbeat(fellow, heartbeat)


@pytest.fixture
async def store(tmp_path):
    """An open store."""
    async with await open_store(f"sqlite:///{tmp_path}/leader.db") as opened:
        yield opened


async def test_a_minute_and_an_hour_are_written_when_they_are_over(store: Store):
    clock = ManualClock(monotonic_s=77.0, unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    history = History(telemetry, store.metrics, clock)
    kitchen = machine()
    join(registry, telemetry, kitchen)
    for _ in range(HOUR_S // int(BEAT_S)):
        clock.advance(BEAT_S)
        beat(registry, telemetry, kitchen, leader_round_trip_ms=20.0)
        telemetry.tick()
        await history.write_due()
    telemetry.take_reply("tiny", Reply(is_failed=False))  # of a model that is placed nowhere: told to nobody

    minutes = await store.metrics.history("main", "id-kitchen", MINUTE_S, HOUR, HOUR + HOUR_S)
    hours = await store.metrics.history("main", "id-kitchen", HOUR_S, 0, 2 * HOUR)
    of_pool = await store.metrics.history("main", "", HOUR_S, 0, 2 * HOUR)
    assert [at_s for at_s, _ in minutes] == [HOUR + MINUTE_S * number for number in range(60)]
    assert minutes[1][1]["leader_round_trip_ms"] == hours[0][1]["leader_round_trip_ms"] == 20.0
    assert (hours[0][1]["availability"], hours[0][1]["score"]) == (1.0, 100.0)
    assert "temperature_c" not in hours[0][1]
    assert (of_pool[0][0], of_pool[0][1]["connected"]) == (HOUR, 1.0)


async def test_hours_that_a_leader_did_not_live_to_see_are_rolled_up_later(store: Store):
    clock = ManualClock(unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    first = History(telemetry, store.metrics, clock)
    join(registry, telemetry, machine())
    clock.advance(MINUTE_S)
    await first.write_due()
    clock.advance(50 * HOUR_S)
    second = History(telemetry, store.metrics, clock)
    for _ in range(4):
        await second.write_due()

    assert [at_s for at_s, _ in await store.metrics.history("main", "", HOUR_S, 0, 2 * HOUR)] == [HOUR]


async def test_a_store_that_fails_is_tried_again_and_loses_no_event(store: Store):
    class Full:
        """Takes nothing while it is full."""

        is_full = True

        def __getattr__(self, name: str):
            async def refuse(*args: object) -> None:
                raise DiskFull("no room")

            return refuse if self.is_full else getattr(store.metrics, name)

    clock, full = ManualClock(unix_s=float(HOUR)), Full()
    registry, telemetry = watching(store, clock)
    history = History(telemetry, full, clock)
    join(registry, telemetry, machine())
    for _ in range(3):
        clock.advance(MINUTE_S)
        await history.write_due()
    full.is_full = False
    await history.write_due()

    assert [event.kind for event in await store.metrics.events("main", 10)] == ["returned"]


async def test_a_lease_that_runs_out_and_a_grade_that_changes_are_events(store: Store):
    clock = ManualClock(unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    kitchen = machine()
    join(registry, telemetry, kitchen)
    for _ in range(40):
        clock.advance(BEAT_S)
        beat(registry, telemetry, kitchen)
        telemetry.tick()
    for _ in range(40):
        clock.advance(BEAT_S)
        telemetry.tick()

    told = [(event.kind, event.words) for event in telemetry.timeline.waiting()]
    assert [kind for kind, _ in told][:2] == ["returned", "lost"]
    assert "graded" in [kind for kind, _ in told]
    assert any("heartbeats did not come" in words for _, words in told)
    assert telemetry.node(kitchen).grade.band == "F"


async def test_a_machine_that_was_gone_before_the_leader_started_is_not_lost_anew(store: Store):
    clock = ManualClock(unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    registry.put(machine("long-gone"))
    registry.leases.grant("id-long-gone", is_linked=False)
    telemetry.tick()
    clock.advance(10 * BEAT_S)
    telemetry.tick()

    assert telemetry.timeline.waiting() == []


async def test_whatever_telemetry_is_told_it_raises_nothing_when_it_fails(store: Store):
    clock = NoClock(unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    kitchen = machine()
    join(registry, telemetry, kitchen)
    stage = StageRecord(0, kitchen.fellow_id, 0, 2, weight_bytes=1, kv_bytes=1, working_bytes=1, free_bytes=None)
    ready, limits = PlacementState.READY, {"context_tokens": 256, "kv_tokens": 256, "in_flight_max": 1}
    telemetry._board.adopt(
        PlacementRecord("p", "m", "", 1, ready, "", Transport.AUTO, "F32", **limits, created_s=0.0, stages=(stage,))
    )
    clock.broken = True
    crash = link_pb2.StageEvent(spec={"placement_id": "p"}, kind=link_pb2.STAGE_EVENT_KIND_CRASHED)
    calls: list[Callable[[], None]] = [
        lambda: telemetry.take_registered(kitchen),
        lambda: telemetry.take_heartbeat(kitchen, link_pb2.Heartbeat()),
        lambda: telemetry.take_link_end(kitchen, FellowLost("gone")),
        lambda: telemetry.take_stage_event(kitchen, crash),
        lambda: telemetry.tick(),
    ]
    for call in calls:
        call()

    assert telemetry.failures == len(calls)


def test_a_machine_that_flaps_pushes_no_other_events_out():
    clock = ManualClock()
    timeline = Timeline(clock)
    for _ in range(3 * WAITING_MAX):
        clock.advance(AGAIN_S / 100)
        timeline.add("silent", "its connection broke", "main", "f1", "kitchen")
    timeline.add("joined", "joined", "main", "f2", "attic")

    told = timeline.waiting()
    assert len([event for event in told if event.fellow_id == "f1"]) == 3 * WAITING_MAX / 100
    assert told[-1].fellow_id == "f2"


async def test_an_incident_is_on_the_timeline_once_when_it_opens_and_once_when_it_is_over(store: Store):
    clock = ManualClock(unix_s=float(HOUR))
    _, telemetry = watching(store, clock)
    told = ToldIncidents(store.incidents, telemetry.take_incident)
    opened = IncidentRecord("i1", "p1", "tiny", 4, IncidentKind.CRASH, HOUR + 1.0)
    for record in (
        opened.noted("open", "the process of stage 1 was ended by SIGKILL", HOUR + 1.0),
        opened.noted("lost", "stage 1 is lost", HOUR + 1.5),
        opened.closed(Outcome.MOVED, "stage 1 is on attic now", HOUR + 3.0),
    ):
        await told.save(record)

    assert [(event.kind, event.words) for event in telemetry.timeline.waiting()] == [
        ("incident_opened", "tiny: the process of stage 1 was ended by SIGKILL"),
        ("incident_closed", "tiny: stage 1 is on attic now"),
    ]
    assert await told.open() == []
    assert [record.outcome for record in await told.newest(5)] == [Outcome.MOVED]


@pytest.mark.parametrize(("mode", "drained"), [(Replace.OFF, []), (Replace.SUGGEST, []), (Replace.ON, ["id-attic"])])
async def test_a_machine_that_stays_bad_is_drained_only_where_that_is_turned_on(store: Store, mode, drained):
    clock, tasks, done = ManualClock(unix_s=float(HOUR)), TaskSet(), []
    registry, telemetry = watching(store, clock)
    replacing = NodeReplacing(mode, telemetry, registry, clock, tasks)

    async def drain(fellow_id: str) -> None:
        done.append(fellow_id)

    replacing.drain = drain
    kitchen, attic = machine(), machine("attic")
    for fellow in (kitchen, attic):
        join(registry, telemetry, fellow)
        fellow.link = ControlLink(fellow.fellow_id, fellow.name)
    for number in range(200):
        clock.advance(BEAT_S)
        beat(registry, telemetry, kitchen)
        if number % 2 == 0:  # every second heartbeat is missing: connected, and bad
            beat(registry, telemetry, attic)
        telemetry.tick()
        replacing.tick()
        await asyncio.sleep(0)
    await tasks.close()

    proposals = [event for event in telemetry.timeline.waiting() if event.kind == "replacement_proposed"]
    assert done == drained
    assert [event.fellow_name for event in proposals] == ([] if mode is Replace.OFF else ["attic"])


async def test_a_machine_that_is_taken_out_of_service_and_back_is_on_the_timeline(store: Store):
    clock = ManualClock(unix_s=float(HOUR))
    registry, telemetry = watching(store, clock)
    kitchen = machine()
    join(registry, telemetry, kitchen)
    for draining in (False, True, True, False):
        kitchen.record = replace(kitchen.record, draining=draining)
        telemetry.tick()

    assert [event.kind for event in telemetry.timeline.waiting()] == ["returned", "drained", "undrained"]
