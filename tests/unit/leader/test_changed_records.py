"""What two change of one machine's record at the same time: both changes last."""

import asyncio

from silentswarm.core.v1 import capabilities_pb2, hardware_pb2
from swarm_core.clock import ManualClock
from swarm_leader.domain.capabilities import Capabilities
from swarm_leader.domain.leases import Leases
from swarm_leader.domain.records import FellowRecord
from swarm_leader.flows.board import Board
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.join import Joining
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.tasks import TaskSet


class SlowStore:
    """Keeps what is saved, each once it may."""

    def __init__(self) -> None:
        self.saved: dict[str, FellowRecord] = {}
        self.asked = asyncio.Event()
        self.may_save = asyncio.Event()

    async def save(self, fellow: FellowRecord) -> None:
        self.asked.set()
        await self.may_save.wait()
        self.saved[fellow.fellow_id] = fellow


async def test_a_machine_whose_record_is_written_for_something_else_meanwhile_stays_drained():
    """Its credential is confirmed in the very moment in which a person drains it."""
    store, clock = SlowStore(), ManualClock()
    registry = Registry(store, Leases(clock, 9.0), clock)
    record = FellowRecord("id-1", "identity-1", "attic", "0", b"", b"", 0.0)
    attic = Fellow(record, hardware_pb2.Hardware(), capabilities_pb2.Capabilities(), Capabilities())
    registry.put(attic)
    board = Board(ledger=None)
    draining = Draining(board, registry, store, replacing=None, healing=None, tasks=TaskSet(), clock=clock)
    joining = Joining(registry, store, board, faults=None, clock=clock, admissions=None)
    drained = asyncio.create_task(draining.drain("attic"))
    await store.asked.wait()
    confirmed = asyncio.create_task(joining.confirm(attic))
    await asyncio.sleep(0)  # it has begun

    store.may_save.set()
    await asyncio.gather(drained, confirmed)

    assert store.saved["id-1"] == registry.find("attic").record
    assert store.saved["id-1"].draining and store.saved["id-1"].credential_confirmed
