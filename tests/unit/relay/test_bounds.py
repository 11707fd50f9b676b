"""What the relay holds in all, and how many streams stand in its doorway."""

import pytest
from swarm_core.errors import Overloaded
from swarm_leader.relay.board import LaneBoard
from swarm_leader.relay.doorway import Doorway
from swarm_leader.relay.lane import LaneLimits

LIMITS = LaneLimits(frames_max=100, payload_bytes_max=40, queued_bytes_max=80, total_bytes_max=100, put_timeout_s=0.05)


def lanes_of(board: LaneBoard, count: int) -> list:
    return [board.attach(f"ring{index}", "act", 1, "sender") for index in range(count)]


async def test_the_fullest_lane_breaks_when_all_together_would_hold_too_much():
    board = LaneBoard(LIMITS)
    stuck, quick = lanes_of(board, 2)
    for _ in range(2):
        await stuck.put(bytes(40))
    await quick.put(bytes(20))
    await quick.put(bytes(20))

    assert isinstance(stuck.ended, Overloaded) and "does not read" in stuck.ended.message
    assert quick.ended is None and await quick.get_bundle(9, 100) == [bytes(20), bytes(20)]
    assert board.tally.queued_bytes == 0


async def test_a_sender_that_fills_the_relay_breaks_its_own_lane():
    board = LaneBoard(LaneLimits(payload_bytes_max=60, queued_bytes_max=1000, total_bytes_max=100))
    (greedy,) = lanes_of(board, 1)
    await greedy.put(bytes(60))
    with pytest.raises(Overloaded):
        await greedy.put(bytes(60))

    assert board.tally.queued_bytes == 0


async def test_a_payload_larger_than_all_the_room_passes_when_nothing_else_is_held():
    board = LaneBoard(LaneLimits(payload_bytes_max=1000, total_bytes_max=100))
    (lane,) = lanes_of(board, 1)
    await lane.put(bytes(500))

    assert await lane.get_bundle() == [bytes(500)]


async def test_what_ended_lanes_held_is_counted_no_more():
    board = LaneBoard(LIMITS)
    first, second = lanes_of(board, 2)
    await first.put(bytes(40))
    await second.put(bytes(30))
    first.lose("sender")
    first.lose("receiver")

    assert board.tally.queued_bytes == 30
    board.attach("ring1", "act", 2, "sender")  # a newer epoch in the place of the second
    assert board.tally.queued_bytes == 0


def test_one_connection_keeps_a_bounded_number_of_streams():
    doorway = Doorway(per_connection_max=2, waiting_max=10)
    with doorway.stream_of("ipv4:1"), doorway.stream_of("ipv4:1"):
        with pytest.raises(Overloaded, match="of this connection"), doorway.stream_of("ipv4:1"):
            pass
        with doorway.stream_of("ipv4:2"):
            other = True
    with doorway.stream_of("ipv4:1"), doorway.stream_of("ipv4:1"):
        again = True

    assert other and again


def test_streams_that_say_nothing_are_bounded_in_all():
    doorway = Doorway(per_connection_max=10, waiting_max=1)
    with doorway.waiting(), pytest.raises(Overloaded, match="which end they are"), doorway.waiting():
        pass
    with doorway.waiting():
        free = True

    assert free
