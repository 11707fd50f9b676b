"""A failure that repeats is not a line every few seconds."""

from swarm_fellow.domain.telling import TELL_AGAIN_S, FailuresTold


def test_the_same_failure_is_told_once_a_minute():
    told = FailuresTold()

    assert told.is_news("no leader", 1, now_s=100.0)
    assert not told.is_news("no leader", 2, now_s=101.0)
    assert told.is_news("no leader", 30, now_s=100.0 + TELL_AGAIN_S)
    assert not told.is_news("no leader", 31, now_s=104.0 + TELL_AGAIN_S)


def test_another_failure_and_the_first_one_after_a_connection_are_told_at_once():
    told = FailuresTold()
    told.is_news("no leader", 1, now_s=100.0)

    assert told.is_news("wrong join token", 2, now_s=101.0)
    assert told.is_news("wrong join token", 1, now_s=102.0)
