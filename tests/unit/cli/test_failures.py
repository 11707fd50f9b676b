"""What a user and a script learn from a failure."""

import pytest
from swarm_cli.failures import FAILED, NOT_FOUND, UNREACHABLE, USAGE, LeaderUnreachable, exit_code_of, words_of
from swarm_core.errors import BadRequest, Reason, RemoteError, SwarmError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaderUnreachable("no leader"), UNREACHABLE),
        (BadRequest("wrong"), USAGE),
        (RemoteError(Reason.MODEL_NOT_FOUND, "no model"), NOT_FOUND),
        (RemoteError(Reason.FELLOW_NOT_FOUND, "no fellow"), NOT_FOUND),
        (RemoteError(Reason.UNAVAILABLE, "the leader is stopping"), FAILED),
        (SwarmError("anything else"), FAILED),
    ],
)
def test_an_error_has_its_exit_code(error: SwarmError, code: int):
    assert exit_code_of(error) == code


def test_a_known_fix_follows_the_sentence():
    words = words_of(RemoteError(Reason.TOO_FEW_FELLOWS, "3 stages, 2 fellows"))

    assert words.splitlines() == ["3 stages, 2 fellows", "ask for fewer stages, or start more fellows"]


def test_an_error_without_a_known_fix_is_its_own_sentence():
    assert words_of(SwarmError("words")) == "words"
