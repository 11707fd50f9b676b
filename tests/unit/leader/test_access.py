"""Who may do what: scopes, forms of secrets, and which token counts when."""

import pytest
from swarm_core.errors import BadRequest, PermissionDenied
from swarm_leader.domain.access import (
    PRUNE_S,
    SCOPES,
    check_allowed,
    check_scopes,
    digest_of,
    end_of,
    enforces,
    is_over,
    is_shown,
    is_usable,
    join_secrets,
)
from swarm_leader.domain.records import ApiTokenRecord, JoinTokenRecord
from swarm_leader.rpc.access import bearer_of

NOW_S = 1_000_000
PIN = "0a" * 32


def token(**changes) -> ApiTokenRecord:
    """A token that holds for ever."""
    return ApiTokenRecord(
        **{"token_id": "t", "digest": "d", "label": "l", "scopes": ("admin",), "created_s": 0, **changes}
    )


@pytest.mark.parametrize("held", range(3))
@pytest.mark.parametrize("needed", range(3))
def test_a_scope_includes_those_below_it(held: int, needed: int):
    if held >= needed:
        assert check_allowed([SCOPES[held]], SCOPES[needed]) is None
    else:
        with pytest.raises(PermissionDenied, match=f"the scope {SCOPES[needed]}; yours has {SCOPES[held]}"):
            check_allowed([SCOPES[held]], SCOPES[needed])


def test_scopes_are_kept_once_and_lowest_first():
    assert check_scopes(["admin", "read", "admin"]) == ("read", "admin")
    for wrong in ([], ["Admin"], ["read", ""], ["node"]):
        with pytest.raises(BadRequest):
            check_scopes(wrong)


@pytest.mark.parametrize(
    ("changes", "usable", "enforcing", "over"),
    [
        ({}, True, True, False),
        ({"expires_s": NOW_S + 1}, True, True, False),
        ({"expires_s": NOW_S}, False, True, False),
        ({"expires_s": NOW_S - PRUNE_S + 1}, False, True, False),
        ({"expires_s": NOW_S - PRUNE_S}, False, False, True),
        ({"revoked_s": NOW_S}, False, False, False),
        ({"revoked_s": NOW_S - PRUNE_S}, False, False, True),
        ({"by_leader": True}, True, False, False),
    ],
)
def test_an_expired_token_counts_until_it_is_forgotten_and_a_revoked_one_never(changes, usable, enforcing, over):
    one = token(**changes)

    assert (is_usable(one, NOW_S), enforces(one, NOW_S), is_over(one, NOW_S)) == (usable, enforcing, over)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, True),
        ({"expires_s": NOW_S}, False),
        ({"expires_s": NOW_S, "used": 1}, True),
        ({"revoked_s": 1}, False),
        ({"uses_left": 0, "used": 2}, True),
        ({"uses_left": None}, True),
    ],
)
def test_join_tokens_are_shown_while_they_can_be_used_or_once_they_were(changes, shown):
    facts = {"join_token_id": "j", "digest": "d", "label": "l", "created_s": 0, "expires_s": NOW_S + 1, "uses_left": 1}

    assert is_shown(JoinTokenRecord(**{**facts, **changes}), NOW_S) is shown


@pytest.mark.parametrize(
    ("presented", "meant"),
    [
        ("swarm-join-a", ("swarm-join-a",)),
        (f"swarm-join-a.{PIN}", (f"swarm-join-a.{PIN}", "swarm-join-a")),
        ("my.own.token", ("my.own.token",)),
        (f".{PIN}", (f".{PIN}", "")),
        ("", ("",)),
    ],
)
def test_a_pin_behind_the_last_dot_is_not_part_of_the_secret(presented, meant):
    assert join_secrets(presented) == meant


@pytest.mark.parametrize(
    ("metadata", "secret"),
    [
        ((), ""),
        ((("authorization", "Bearer sk-1"),), "sk-1"),
        ((("authorization", "bearer   sk-1 "),), "sk-1"),
        ((("authorization", "sk-1"),), ""),
        ((("authorization", "Basic sk-1"),), ""),
        ((("authorization", "Bearer "),), ""),
        ((("authorization", "Bearer " + "x" * 257),), ""),
        ((("authorization", b"Bearer sk-1"),), ""),
        ((("authorization", "Bearer sk-1"), ("authorization", "Bearer sk-1")), ""),
        ((("x-api-key", "sk-1"),), ""),
    ],
)
def test_one_bearer_is_read_and_nothing_else(metadata, secret):
    assert bearer_of(metadata) == secret


def test_any_text_has_a_digest():
    assert digest_of("sk-swarm-\ud800") != digest_of("sk-swarm-")
    assert len(digest_of("")) == 64


@pytest.mark.parametrize(("now_s", "end_s"), [(100.0, 101), (100.001, 102), (100.95, 102)])
def test_a_token_holds_at_least_as_long_as_was_asked(now_s, end_s):
    """One of a second, made late in a second, was over at once."""
    assert end_of(now_s, 1) == end_s
