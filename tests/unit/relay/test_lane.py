"""Lanes of the relay: order, bounds, epochs, ends."""

import asyncio

import pytest
from swarm_core.errors import BadFrame, Conflict, LinkBroken, Overloaded, StaleEpoch
from swarm_leader.relay.board import LaneBoard
from swarm_leader.relay.lane import Lane, LaneLimits

SMALL = LaneLimits(frames_max=2, payload_bytes_max=10, queued_bytes_max=12, put_timeout_s=0.05)


async def test_payloads_come_out_in_order_each_once():
    lane = Lane("act", 1, LaneLimits())
    for payload in (b"1", b"2", b"3"):
        await lane.put(payload)

    assert [await lane.get_bundle() for _ in range(3)] == [[b"1"], [b"2"], [b"3"]]


async def test_what_queued_up_is_taken_together_up_to_a_count_and_a_size():
    lane = Lane("act", 1, LaneLimits())
    for payload in (b"1", b"22", b"333", b"4444", b"55555"):
        await lane.put(payload)

    assert await lane.get_bundle(count_max=2, bytes_max=100) == [b"1", b"22"]
    assert await lane.get_bundle(count_max=9, bytes_max=8) == [b"333", b"4444"]
    assert await lane.get_bundle(count_max=9, bytes_max=1) == [b"55555"]


async def test_a_receiver_that_closes_its_side_gets_nothing_more():
    lane = Lane("act", 1, LaneLimits())
    waiting = asyncio.ensure_future(lane.get_bundle())
    await asyncio.sleep(0)
    lane.stop_receiving()

    assert await waiting == []
    assert lane.ended is None


async def test_a_full_lane_makes_its_sender_wait_until_the_receiver_reads():
    lane = Lane("act", 1, LaneLimits(frames_max=1, put_timeout_s=5))
    await lane.put(b"1")
    waiting = asyncio.ensure_future(lane.put(b"2"))
    await asyncio.sleep(0)
    was_waiting = not waiting.done()
    first = await lane.get_bundle()
    await waiting

    assert was_waiting and first == [b"1"] and await lane.get_bundle() == [b"2"]


async def test_a_lane_full_for_too_long_ends_with_the_reason():
    lane = Lane("act", 1, SMALL)
    await lane.put(b"1")
    await lane.put(b"2")

    with pytest.raises(Overloaded, match="does not read"):
        await lane.put(b"3")
    with pytest.raises(Overloaded):
        await lane.get_bundle()


async def test_bytes_are_bounded_as_well_as_frames():
    lane = Lane("act", 1, SMALL)
    await lane.put(b"12345678")

    with pytest.raises(Overloaded):
        await lane.put(b"12345678")


async def test_a_payload_over_the_limit_is_refused_with_both_numbers():
    with pytest.raises(BadFrame, match=r"11 bytes.*takes 10"):
        await Lane("act", 1, SMALL).put(b"12345678901")


async def test_a_newer_epoch_ends_the_older_lane():
    board = LaneBoard(LaneLimits())
    old = board.attach("ring", "act", 1, "sender")
    waiting = asyncio.ensure_future(old.get_bundle())
    board.attach("ring", "act", 2, "sender")

    with pytest.raises(StaleEpoch):
        await waiting
    with pytest.raises(StaleEpoch):
        board.attach("ring", "act", 1, "receiver")


async def test_one_end_is_attached_once():
    board = LaneBoard(LaneLimits())
    board.attach("ring", "act", 1, "sender")

    with pytest.raises(Conflict):
        board.attach("ring", "act", 1, "sender")


async def test_the_loss_of_one_end_ends_the_other():
    board = LaneBoard(LaneLimits())
    lane = board.attach("ring", "act", 1, "receiver")
    board.attach("ring", "act", 1, "sender")
    waiting = asyncio.ensure_future(lane.get_bundle())
    await asyncio.sleep(0)
    lane.lose("sender")

    with pytest.raises(LinkBroken):
        await waiting


async def test_lanes_of_different_rings_do_not_meet():
    board = LaneBoard(LaneLimits())
    one = board.attach("ring-1", "act", 1, "sender")
    other = board.attach("ring-2", "act", 1, "receiver")
    await one.put(b"mine")
    waiting = asyncio.ensure_future(other.get_bundle())
    await asyncio.sleep(0.01)

    assert not waiting.done()
    waiting.cancel()


async def test_ended_lanes_make_room_for_new_ones_however_old_a_living_ring_is():
    """A long-lived ring was the oldest entry, and nothing behind it was ever forgotten."""
    board = LaneBoard(LaneLimits(), channels_max=3)
    board.attach("old ring", "act", 1, "sender")
    for number in range(10):
        lane = board.attach(f"ring-{number}", "act", 1, "sender")
        lane.lose("sender")

    assert (board.attach("newest", "act", 1, "sender")).ended is None


async def test_a_refused_lane_leaves_nothing_behind():
    board = LaneBoard(LaneLimits(), channels_max=2)
    for name in ("a", "b"):
        board.attach(name, "act", 1, "sender")
    for _ in range(2):
        with pytest.raises(Overloaded, match="2 live lanes"):
            board.attach("c", "act", 1, "sender")
