"""What happens too often: rings that are wired again and again, models that crash again and again."""

from swarm_leader.domain.healing.pace import (
    CRASHES_MAX,
    CRASHES_S,
    FREE,
    LATELY_S,
    WAIT_MAX_S,
    WAIT_S,
    CrashCount,
    RewirePace,
)


def test_the_first_wirings_wait_for_nothing_and_those_behind_them_ever_longer():
    pace = RewirePace()

    waits_s = [pace.wait_s("tiny", 100.0 + second) for second in range(FREE + 6)]

    assert waits_s[:FREE] == [0.0] * FREE
    assert waits_s[FREE : FREE + 3] == [WAIT_S, 2 * WAIT_S, 4 * WAIT_S]
    assert waits_s[-1] == WAIT_MAX_S


def test_another_model_and_a_quiet_while_begin_anew():
    pace = RewirePace()
    for second in range(FREE + 1):
        pace.wait_s("tiny", 100.0 + second)

    assert pace.wait_s("other", 106.0) == 0.0
    assert pace.wait_s("tiny", 106.0 + LATELY_S) == 0.0


def test_a_model_that_crashes_so_often_within_a_minute_is_given_up_and_one_that_does_so_slowly_is_not():
    count = CrashCount()
    quick = [count.is_too_often("quick", 100.0 + number) for number in range(CRASHES_MAX)]
    slow = [count.is_too_often("slow", 100.0 + number * CRASHES_S / 10) for number in range(2 * CRASHES_MAX)]

    assert quick == [False] * (CRASHES_MAX - 1) + [True]
    assert not any(slow)
