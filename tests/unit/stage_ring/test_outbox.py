"""What waits for a link: in order, ends first, and nothing of a session that is over."""

import asyncio

from silentswarm.ring.v1 import ring_pb2
from swarm_stage.ring.outbox import Outbox


def steps(*sessions: int, size: int = 8) -> ring_pb2.FrameBatch:
    frames = [ring_pb2.Frame(session=session) for session in sessions]
    for frame in frames:
        frame.hidden.hidden.data = bytes(size)
    return ring_pb2.FrameBatch(epoch=1, frames=frames)


def ends(*sessions: int) -> ring_pb2.FrameBatch:
    return ring_pb2.FrameBatch(
        epoch=1, frames=[ring_pb2.Frame(session=session, end=ring_pb2.End()) for session in sessions]
    )


async def drained(outbox: Outbox) -> list[tuple[str, list[int]]]:
    taken = []
    while len(outbox):
        for batch in await outbox.take(1, 0):
            kind = batch.frames[0].WhichOneof("body")
            taken.append((kind, [frame.session for frame in batch.frames]))
    return taken


async def test_batches_leave_in_the_order_they_came():
    outbox = Outbox(8)
    for session in (3, 1, 2):
        assert outbox.put(steps(session))

    assert await drained(outbox) == [("hidden", [3]), ("hidden", [1]), ("hidden", [2])]


async def test_an_end_goes_first_and_what_waits_of_its_session_is_not_sent():
    outbox = Outbox(8)
    for batch in (steps(1, 2, 3), steps(2), steps(3)):
        outbox.put(batch)
    outbox.put(ends(2))

    assert await drained(outbox) == [("end", [2]), ("hidden", [1, 3]), ("hidden", [3])]


async def test_callers_who_come_and_go_while_the_link_is_stuck_leave_only_their_ends():
    outbox = Outbox(8)
    outbox.put(steps(1))
    for session in range(2, 1000):
        assert outbox.put(steps(session, size=1000))
        assert outbox.put(ends(session))

    assert len(outbox) == 2
    assert await drained(outbox) == [("end", list(range(2, 1000))), ("hidden", [1])]


async def test_it_is_full_for_steps_at_its_bound_but_never_for_ends():
    outbox = Outbox(2)
    assert outbox.put(steps(1)) and outbox.put(steps(2))

    assert not outbox.put(steps(3))
    assert outbox.put(ends(3))


async def test_a_bundle_holds_more_than_one_batch_only_within_its_bytes():
    outbox = Outbox(8)
    for batch in (steps(1, size=900), steps(2, size=50), steps(3, size=50), steps(4, size=50), steps(5, size=50)):
        outbox.put(batch)

    assert [len(await outbox.take(2, 500)) for _ in range(3)] == [1, 2, 2]


async def test_taking_waits_for_the_next_batch():
    outbox = Outbox(8)
    taking = asyncio.ensure_future(outbox.take(8, 100))
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(steps(7))

    assert [batch.frames[0].session for batch in await asyncio.wait_for(taking, 5)] == [7]
