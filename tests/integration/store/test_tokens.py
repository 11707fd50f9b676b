"""What flows rely on of stored tokens, the same on SQLite and on PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest
from swarm_core.errors import Conflict
from swarm_leader.domain.records import TokenUsage
from swarm_leader.store import Store, open_store

from tests.integration.store.older import go_back
from tests.integration.store.rows import api_token, fellow, join_token

NOW_S = 1_766_000_000


async def test_a_token_comes_back_exactly_as_it_was_added(store: Store):
    await store.tokens.add(api_token(1))
    await store.tokens.add(api_token(2, expires_s=None, revoked_s=None, last_used_s=None, usage=TokenUsage()))

    assert await store.tokens.all() == [
        api_token(2, expires_s=None, revoked_s=None, last_used_s=None, usage=TokenUsage()),
        api_token(1),
    ]


async def test_two_tokens_never_share_a_secret(store: Store):
    await store.tokens.add(api_token(1))

    with pytest.raises(Conflict):
        await store.tokens.add(api_token(2, digest=api_token(1).digest))


async def test_the_first_revocation_stands(store: Store):
    await store.tokens.add(api_token(1, revoked_s=None))
    await store.tokens.revoke("tok-1", NOW_S)
    await store.tokens.revoke("tok-1", NOW_S + 5)
    await store.tokens.revoke("tok-unknown", NOW_S)

    assert [token.revoked_s for token in await store.tokens.all()] == [NOW_S]


async def test_what_is_counted_adds_up(store: Store):
    await store.tokens.add(api_token(1))
    await store.tokens.add(api_token(2))
    used = TokenUsage(requests=1, prompt_tokens=10, completion_tokens=20, cancelled=1)

    await store.tokens.count({"tok-1": used, "tok-gone": used}, {"tok-2": NOW_S})
    await store.tokens.count({"tok-1": used}, {"tok-1": NOW_S + 60})

    second, first = await store.tokens.all()
    assert first == replace(api_token(1), usage=api_token(1).usage + used + used, last_used_s=NOW_S + 60)
    assert second == replace(api_token(2), last_used_s=NOW_S)


async def test_a_removed_token_is_gone(store: Store):
    for number in (1, 2, 3):
        await store.tokens.add(api_token(number))

    await store.tokens.remove(["tok-1", "tok-3"])

    assert [token.token_id for token in await store.tokens.all()] == ["tok-2"]


async def test_a_join_token_comes_back_exactly_as_it_was_added(store: Store):
    await store.join_tokens.add(join_token(1))
    await store.join_tokens.add(join_token(2, uses_left=None, revoked_s=NOW_S))

    assert await store.join_tokens.all() == [join_token(2, uses_left=None, revoked_s=NOW_S), join_token(1)]
    assert await store.join_tokens.by_digest(join_token(1).digest) == join_token(1)
    assert await store.join_tokens.by_digest("0") is None


async def test_of_many_machines_at_once_as_many_get_in_as_there_are_uses(store: Store):
    await store.join_tokens.add(join_token(1, uses_left=3, used=0))

    let_in = await asyncio.gather(*(store.join_tokens.use("join-1", NOW_S) for _ in range(10)))

    assert sum(let_in) == 3
    assert await store.join_tokens.all() == [join_token(1, uses_left=0, used=3)]


@pytest.mark.parametrize(
    "changes", [{"uses_left": 0}, {"expires_s": NOW_S}, {"revoked_s": NOW_S - 1}], ids=["used up", "expired", "revoked"]
)
async def test_a_join_token_that_is_over_lets_nobody_in(store: Store, changes: dict[str, int]):
    await store.join_tokens.add(join_token(1, **changes))

    assert not await store.join_tokens.use("join-1", NOW_S)
    assert not await store.join_tokens.use("join-unknown", NOW_S)
    assert await store.join_tokens.all() == [join_token(1, **changes)]


async def test_a_join_token_for_any_number_stays_so(store: Store):
    await store.join_tokens.add(join_token(1, uses_left=None, used=0))

    assert await store.join_tokens.use("join-1", NOW_S)
    assert await store.join_tokens.all() == [join_token(1, uses_left=None, used=1)]


async def test_a_revoked_join_token_keeps_its_first_end(store: Store):
    await store.join_tokens.add(join_token(1))

    assert await store.join_tokens.revoke("join-1", NOW_S)
    assert await store.join_tokens.revoke("join-1", NOW_S + 9)
    assert not await store.join_tokens.revoke("join-unknown", NOW_S)
    assert await store.join_tokens.all() == [join_token(1, revoked_s=NOW_S)]


async def test_join_tokens_that_are_long_over_are_pruned(store: Store):
    await store.join_tokens.add(join_token(1, expires_s=NOW_S - 1))
    await store.join_tokens.add(join_token(2, revoked_s=NOW_S - 1))
    await store.join_tokens.add(join_token(3, revoked_s=NOW_S))

    await store.join_tokens.prune(NOW_S)

    assert [token.join_token_id for token in await store.join_tokens.all()] == ["join-3"]


async def test_machines_from_before_credentials_have_none(database_url: str):
    store = await open_store(database_url)
    await store.fellows.save(fellow(1))
    await store.close()
    await go_back(database_url, "0002")

    async with await open_store(database_url) as store:
        unknown = {"credential_sha256": "", "credential_confirmed": False, "joined_by": "", "draining": False}
        assert await store.fellows.all() == [fellow(1, **unknown)]
        assert await store.tokens.all() == []
