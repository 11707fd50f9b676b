"""What a user and a script learn from a failure."""

import pytest
from swarm_cli.failures import (
    FAILED,
    NOT_FOUND,
    UNREACHABLE,
    UP_FIXES,
    USAGE,
    LeaderUnreachable,
    exit_code_of,
    words_of,
)
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


def test_a_fix_the_sentence_names_already_is_not_told_twice():
    sentence = "there is no model 'x'; available: none yet; import one with `swarm model-import`"

    assert words_of(RemoteError(Reason.MODEL_NOT_FOUND, sentence)) == sentence


def test_a_model_that_loads_is_not_advised_to_be_loaded():
    assert words_of(RemoteError(Reason.MODEL_NOT_READY, "tiny is loading; try again soon")).count("\n") == 0


@pytest.mark.parametrize("reason", list(Reason))
def test_advice_under_up_names_options_that_up_has(reason: Reason):
    advice = words_of(RemoteError(reason, ""), UP_FIXES)

    assert "--num-stages" not in advice and "--context" not in advice
