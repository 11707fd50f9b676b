"""What one fellow can take up of what is kept for all."""

from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.clock import ManualClock
from swarm_leader.domain.healing.pace import FREE, LATELY_S, WAIT_MAX_S, RewirePace
from swarm_leader.domain.told import WORDS_MAX, cut_words
from swarm_leader.flows.kept import KEPT_MAX, KeptReplies
from swarm_leader.telemetry.timeline import OFTEN_MAX, Timeline


def named(prefix: str, count: int) -> list[link_pb2.KeptReply]:
    return [link_pb2.KeptReply(request_id=f"{prefix}-{number}") for number in range(count)]


def test_who_names_a_hundred_thousand_replies_pushes_out_its_own_alone():
    kept = KeptReplies(10.0, lambda: 0.0)
    kept.remember("honest", named("honest", 50))
    kept.remember("modest", named("modest", 3))
    kept.remember("greedy", named("greedy", 100_000))

    counts = [sum(kept.find(one.request_id) is not None for one in named(name, 50)) for name in ("honest", "modest")]
    assert counts == [50, 3]
    assert sum(kept.find(one.request_id) is not None for one in named("greedy", 100_000)) == KEPT_MAX - 53


def test_a_reply_stays_with_the_fellow_that_named_it_first_until_its_link_is_over():
    kept = KeptReplies(10.0, lambda: 0.0)
    kept.remember("first", named("r", 1))
    kept.remember("second", named("r", 1))
    before = kept.find("r-0")
    kept.forget("first")

    assert before is not None and before.fellow_id == "first"
    assert kept.find("r-0") is None


def test_a_ring_that_is_wired_again_and_again_waits_ever_longer_and_another_one_does_not():
    pace = RewirePace()
    waits_s = [pace.wait_s("a", 0.1 * number) for number in range(FREE + 8)]

    assert waits_s[:FREE] == [0.0] * FREE
    assert waits_s[FREE:] == [0.5, 1.0, 2.0, 4.0, *[WAIT_MAX_S] * 4]
    assert pace.wait_s("b", 2.0) == 0.0
    assert pace.wait_s("a", 2.0 + LATELY_S) == 0.0


def test_a_stage_that_is_said_to_crash_without_end_is_told_of_a_hundred_times_in_ten_seconds():
    clock = ManualClock()
    timeline = Timeline(clock)
    for number in range(10 * OFTEN_MAX):
        timeline.add("stage_crashed", f"{number}", "main", "one")
    timeline.add("stage_crashed", "of another machine", "main", "two")
    clock.advance(10.0)
    timeline.add("stage_crashed", "later", "main", "one")

    assert [event.words for event in timeline.waiting()[OFTEN_MAX:]] == ["of another machine", "later"]


def test_words_that_are_too_long_keep_their_beginning_and_their_end():
    cut = cut_words("begin" + "x" * 10**6 + "end")

    assert cut.startswith("begin") and cut.endswith("end") and len(cut) <= WORDS_MAX
    assert cut_words("short") == "short"
