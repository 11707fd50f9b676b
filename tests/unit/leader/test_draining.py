"""Emptying a machine that holds stages of several models, while the others change."""

from dataclasses import replace
from types import SimpleNamespace

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2
from swarm_core.clock import ManualClock
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.healing.choose import Choice, Chosen, Way
from swarm_leader.domain.leases import Leases
from swarm_leader.domain.records import FellowRecord, PlacementRecord, PlacementState, StageRecord, Transport
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.tasks import TaskSet


def held_by(fellow_id: str, model_id: str) -> PlacementRecord:
    """A ready placement of one stage."""
    stage = StageRecord(0, fellow_id, 0, 2, weight_bytes=1, kv_bytes=1, working_bytes=1, free_bytes=None)
    return PlacementRecord(
        placement_id=f"of {model_id}",
        model_id=model_id,
        manifest_sha256="0" * 64,
        epoch=1,
        state=PlacementState.READY,
        reason="",
        transport=Transport.AUTO,
        dtype="F32",
        context_tokens=256,
        kv_tokens=256,
        in_flight_max=1,
        created_s=0.0,
        stages=(stage,),
    )


def on(fellow_id: str, record: PlacementRecord) -> PlacementRecord:
    """The same, held by another."""
    return replace(record, stages=(replace(record.stages[0], fellow_id=fellow_id),))


class MovingBoth:
    """Hands a stage over; while it does, something else moves every other stage of that machine too."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.moved: list[str] = []

    async def move(self, placement: Placement, stage_index: int, choice: Choice, why: str) -> None:
        self.moved.append(placement.model_id)
        for one in self.board.all():
            self.board.show(one, on("id-kitchen", one.record))


async def test_a_stage_that_went_elsewhere_while_another_was_handed_over_is_not_asked_after():
    clock = ManualClock()
    registry, board, tasks = Registry(None, Leases(clock, 9.0), clock), Board(None), TaskSet()
    record = FellowRecord("id-attic", "identity-1", "attic", "0", b"", b"", 0.0, draining=True)
    attic = Fellow(record, hardware_pb2.Hardware(), capabilities_pb2.Capabilities(), Capabilities())
    registry.put(attic)
    for model_id in ("one", "two"):
        board.adopt(held_by("id-attic", model_id))
    stage = on("id-kitchen", held_by("id-attic", "one")).stages[0]
    choice = Choice(stage, Way.STANDBY, "kitchen")
    replacing = SimpleNamespace(choose=lambda placement, lost, silent: Chosen({0: choice}, {}))
    healing = MovingBoth(board)
    draining = Draining(board, registry, None, replacing, healing, tasks, clock)

    await draining._empty(attic)

    assert healing.moved == ["one"]
