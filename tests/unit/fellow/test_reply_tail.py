"""What is kept of a reply whose leader is away, and what goes first."""

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from swarm_fellow.flows.reply_tail import ReplyTail, TailLimits, TailRoom

PLENTY = TailLimits(1000, 10**6)


def batch(sequence: int, text: str = "x") -> GenerationEvent:
    """One event."""
    return GenerationEvent(sequence=sequence, tokens=GenerationEvent.TokenBatch(text=text))


def filled(room: TailRoom, count: int, limits: TailLimits = PLENTY) -> ReplyTail:
    """A tail of so many events."""
    tail = ReplyTail(room)
    for sequence in range(1, count + 1):
        tail.push(batch(sequence), limits)
    return tail


def test_all_that_came_behind_an_event_is_there():
    tail = filled(TailRoom(), 5)

    assert [event.sequence for event in tail.after(3)] == [4, 5]
    assert list(tail.after(5)) == []
    assert (tail.first_sequence, tail.last_sequence) == (1, 5)


def test_beyond_its_bounds_the_oldest_goes_and_is_known_to_be_gone():
    tail = filled(TailRoom(), 5, TailLimits(3, 10**6))

    assert tail.first_sequence == 3
    assert tail.after(1) is None
    assert [event.sequence for event in tail.after(2)] == [3, 4, 5]


def test_bytes_count_and_the_newest_stays_however_large():
    tail = filled(TailRoom(), 3)

    tail.push(batch(4, "x" * 1000), TailLimits(1000, 500))

    assert (tail.first_sequence, tail.last_sequence) == (4, 4)


def test_replies_share_one_room_and_give_back_what_they_had():
    room = TailRoom(bytes_max=batch(1).ByteSize() * 4)
    first, second = filled(room, 3), filled(room, 3)
    assert (first.first_sequence, second.first_sequence) == (1, 3)
    assert room.used_bytes <= room.bytes_max

    first.clear()
    second.push(batch(4), PLENTY)

    assert second.first_sequence == 3
    second.clear()
    assert room.used_bytes == 0
