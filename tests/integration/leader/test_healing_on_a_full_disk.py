"""A stage dies while the leader's disk is full: the ring is healed all the same, and recorded once there is room."""

import sqlalchemy as sa
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from tests.integration.leader.rig import MODEL, running_leader, text_of, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined

CRASHED = link_pb2.STAGE_EVENT_KIND_CRASHED


async def refuse_writes(rig, refused: bool) -> None:
    """From now on the database takes no write, as on a disk without room; or takes them again."""
    async with rig.leader.store.ledger._database.reading() as connection:
        await connection.execute(sa.text(f"PRAGMA query_only={int(refused)}"))


async def test_a_ring_is_healed_on_a_full_disk_and_recorded_when_there_is_room_again(tmp_path):
    attic, kitchen = ScriptedFellow("attic", 4 * 10**9), ScriptedFellow("kitchen", 3 * 10**9)
    async with running_leader(tmp_path) as rig, joined(rig.address, attic, kitchen):
        before = await rig.load_ready(num_stages=2)
        await refuse_writes(rig, True)
        kitchen.report(CRASHED, "killed " + "x" * 4000)
        await until(lambda: kitchen.kinds().count("load") == 2, "it is loaded again")
        after = await rig.until_state("READY")
        answer = text_of([event async for event in rig.generate()])
        stale = await rig.leader.store.ledger.latest(MODEL)

        await refuse_writes(rig, False)
        placement = rig.leader.board.get(MODEL)
        await until(lambda: not placement.is_unwritten, "it is recorded")
        written = await rig.leader.store.ledger.latest(MODEL)

    assert (after.placement_id, answer) == (before.placement_id, "Hi there")
    assert stale.epoch == before.epoch and written == placement.record and written.epoch == after.epoch
