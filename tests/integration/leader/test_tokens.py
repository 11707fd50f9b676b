"""Tokens of people and programs: made, shown once, judged, ended, counted. A real leader on a real socket."""

import asyncio
import re
import stat
from pathlib import Path

import grpc
import pytest
from silentswarm.leader.v1 import fleet_pb2, inference_pb2, models_pb2, serving_pb2
from swarm_core.clock import ManualClock
from swarm_core.errors import Reason
from swarm_leader.domain.access import PRUNE_S
from swarm_leader.domain.records import TokenUsage
from swarm_leader.flows.calls import OpenCalls
from swarm_leader.flows.tokens import Tokens
from swarm_leader.store import open_store
from swarm_leader.store.admin_file import DiskAdminFile
from swarm_rpc.errors import error_of

from tests.integration.leader.callers import TokenClient, bearing, who_am_i
from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined


async def test_an_open_leader_says_that_it_asks_for_no_token(tmp_path):
    async with running_leader(tmp_path) as rig:
        answer = await who_am_i(rig.channel, "")
        with_one = await who_am_i(rig.channel, "sk-whatever-a-client-had-set")

    assert not answer.enforced
    assert not answer.HasField("token")
    assert not with_one.enforced


async def test_the_first_token_locks_the_doors_and_revoking_every_one_opens_them(tmp_path):
    async with running_leader(tmp_path) as rig:
        made = await TokenClient(rig.channel).make("admin", label="ann")
        locked = await refusal_of(rig.models.ListModels(models_pb2.ListModelsRequest()))
        me = await who_am_i(rig.channel, made.secret)
        await TokenClient(rig.channel, made.secret).revoke(made.token.token_id)
        again = await who_am_i(rig.channel, made.secret)

    assert re.fullmatch(r"sk-swarm-[A-Za-z0-9_-]{43}", made.secret)
    assert locked.why is Reason.UNAUTHENTICATED
    assert (me.enforced, me.token.label, list(me.token.scopes)) == (True, "ann", ["admin"])
    assert not again.enforced


async def test_a_secret_is_nowhere_but_in_the_answer(tmp_path):
    async with running_leader(tmp_path) as rig:
        made = await TokenClient(rig.channel).make("admin", "read")
        listed = await TokenClient(rig.channel, made.secret).all()
        await rig.leader.doors.tokens.flush()
    on_disk = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    assert list(listed[made.token.token_id].scopes) == ["read", "admin"]
    assert made.secret not in str(listed)
    assert made.secret.encode() not in on_disk
    assert made.secret.removeprefix("sk-swarm-").encode() not in on_disk


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"label": " "}, "label"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\x1b[2Jb"}, "label"),
        ({"expires_in_s": 2**63}, "expires_in_s"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused_by_its_field(tmp_path, changes, field):
    wanted = {"label": "ann", "scopes": ["read"], "expires_in_s": 0, **changes}
    async with running_leader(tmp_path) as rig:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await TokenClient(rig.channel).make(
                *wanted["scopes"], label=wanted["label"], expires_in_s=wanted["expires_in_s"]
            )
        still_open = await who_am_i(rig.channel, "")

    assert (error_of(refused.value).why, error_of(refused.value).facts["field"]) == (Reason.BAD_REQUEST, field)
    assert not still_open.enforced


async def test_every_token_that_opens_nothing_gets_one_same_answer(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await TokenClient(rig.channel).make("admin")
        client = TokenClient(rig.channel, admin.secret)
        expired, revoked = await client.make("admin", expires_in_s=1), await client.make("admin")
        await client.revoke(revoked.token.token_id)
        await until_refused(rig.channel, expired.secret)
        wrong = (
            (),
            bearing("sk-swarm-unknown"),
            bearing(expired.secret),
            bearing(revoked.secret),
            bearing(admin.secret + "x"),
            bearing("x" * 5000),
            (("authorization", admin.secret),),
            (("authorization", f"Basic {admin.secret}"),),
            (*bearing(admin.secret), *bearing("sk-swarm-second")),
        )
        told = set()
        for metadata in wrong:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rig.models.ListModels(models_pb2.ListModelsRequest(), metadata=metadata)
            told.add((refused.value.code(), refused.value.details()))
        spelled_otherwise = (("authorization", f"bearer  {admin.secret}"),)
        await rig.models.ListModels(models_pb2.ListModelsRequest(), metadata=spelled_otherwise)

    assert len(told) == 1
    assert next(iter(told))[0] is grpc.StatusCode.UNAUTHENTICATED


async def until_refused(channel: grpc.aio.Channel, secret: str) -> None:
    """Wait until a secret opens nothing any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                await who_am_i(channel, secret)
            except grpc.aio.AioRpcError:
                return
            await asyncio.sleep(0.05)


async def test_a_scope_includes_those_below_it_and_a_refusal_names_the_one_that_is_needed(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await TokenClient(rig.channel).make("admin")
        client = TokenClient(rig.channel, admin.secret)
        read, operate = await client.make("read"), await client.make("operate")

        def look(secret):
            return rig.models.ListModels(models_pb2.ListModelsRequest(), metadata=bearing(secret))

        def load(secret):
            request = serving_pb2.UnloadModelRequest(model_id=MODEL)
            return rig.serving.UnloadModel(request, metadata=bearing(secret))

        def delete(secret):
            request = fleet_pb2.DeleteFellowRequest(fellow_id="nobody")
            return rig.fleet.DeleteFellow(request, metadata=bearing(secret))

        await look(read.secret)
        await look(operate.secret)
        await load(operate.secret)
        await load(admin.secret)
        denied = [await refusal_of(load(read.secret)), await refusal_of(delete(operate.secret))]
        through = await refusal_of(delete(admin.secret))

    assert [(one.why, one.facts["scope"]) for one in denied] == [
        (Reason.PERMISSION_DENIED, "operate"),
        (Reason.PERMISSION_DENIED, "admin"),
    ]
    assert "a token with the scope operate; yours has read" in denied[0].message
    assert through.why is Reason.FELLOW_NOT_FOUND


async def test_a_revoked_tokens_reply_ends_at_once_and_on_every_stage(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        kitchen.replies_with = None
        await rig.load_ready()
        admin = await TokenClient(rig.channel).make("admin")
        client = TokenClient(rig.channel, admin.secret)
        user, other = await client.make("operate"), await client.make("operate")
        calls = [generate(rig, one.secret) for one in (user, other)]
        readings = [asyncio.create_task(refusal_of(call)) for call in calls]
        await until(lambda: len(kitchen.requests) == 2, "both requests arrived")
        doomed = next(one for one in kitchen.requests if one.generation.caller == user.token.token_id)

        await client.revoke(user.token.token_id)

        refusal = await readings[0]
        assert refusal.why is Reason.UNAUTHENTICATED
        await until(lambda: kitchen.cancels == [doomed.request_id], "the stage is told")
        assert not readings[1].done()
        readings[1].cancel()


def generate(rig, secret):
    """A reply for the bearer of a secret."""
    request = inference_pb2.GenerateRequest(model_id=MODEL)
    request.generation.prompt = "Hello"
    request.generation.caller = "whatever-it-says"
    return rig.inference.Generate(request, timeout=10, metadata=bearing(secret))


async def test_what_a_token_used_is_counted_and_outlives_the_leader(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("kitchen")) as (kitchen,):
        await rig.load_ready()
        admin = await TokenClient(rig.channel).make("admin")
        client = TokenClient(rig.channel, admin.secret)
        user = await client.make("operate")
        _ = [event async for event in generate(rig, user.secret)]
        kitchen.replies_with = None
        await leave_in_the_middle(rig, kitchen, user.secret)
        await until(lambda: rig.leader.doors.tokens.get(user.token.token_id).usage.cancelled == 1, "counted")
        before = (await client.all())[user.token.token_id]
        await rig.leader.drain(0)
    async with running_leader(tmp_path) as rig:
        after = (await TokenClient(rig.channel, admin.secret).all())[user.token.token_id]

    assert (after.usage.requests, after.usage.prompt_tokens) == (2, 6)
    assert (after.usage.completion_tokens, after.usage.cancelled) == (2 + 3, 1)
    assert after == before
    assert after.last_used_s % 60 == 0


async def leave_in_the_middle(rig, kitchen, secret):
    """A caller that goes away after three tokens."""
    from silentswarm.core.v1.generation_pb2 import GenerationEvent

    call = generate(rig, secret)
    first = asyncio.create_task(call.read())
    known = len(kitchen.requests)
    await until(lambda: len(kitchen.requests) > known - 1 and kitchen.requests[-1].request_id, "the request")
    await until(lambda: len(kitchen.requests) == 2, "the request arrived")
    request_id = kitchen.requests[-1].request_id
    kitchen.say(request_id, 1, started=GenerationEvent.Started(prompt_tokens=3, seed=1))
    kitchen.say(request_id, 2, tokens=GenerationEvent.TokenBatch(text="abc", ids=[1, 2, 3]))
    await first
    while (await call.read()).event.WhichOneof("event") != "tokens":
        pass
    call.cancel()


async def test_with_tokens_required_the_first_admin_token_is_in_a_private_file(tmp_path):
    async with running_leader(tmp_path, require_api_token=True) as rig:
        file = tmp_path / "admin-token"
        secret = file.read_text().strip()
        me = await who_am_i(rig.channel, secret)
        refused = await refusal_of(rig.models.ListModels(models_pb2.ListModelsRequest()))
    async with running_leader(tmp_path, require_api_token=True) as rig:
        again = await who_am_i(rig.channel, secret)
        count = len(await TokenClient(rig.channel, secret).all())

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (list(me.token.scopes), me.token.label) == (["read", "operate", "admin"], "made by the leader")
    assert refused.why is Reason.UNAUTHENTICATED
    assert again.token.token_id == me.token.token_id
    assert (file.read_text().strip(), count) == (secret, 1)


async def test_somebody_can_always_get_in_where_tokens_are_asked_for(tmp_path):
    """Only a reader's token, or the last admin's revoked: the leader makes one for whoever can read its folder."""
    file = tmp_path / "admin-token"
    async with running_leader(tmp_path) as rig:
        await TokenClient(rig.channel).make("read")
        first = file.read_text().strip()
        me = await who_am_i(rig.channel, first)
        await TokenClient(rig.channel, first).revoke(me.token.token_id)
        second = file.read_text().strip()

        assert second != first
        assert (await who_am_i(rig.channel, second)).enforced


async def test_the_file_goes_with_its_token(tmp_path):
    file = tmp_path / "admin-token"
    async with running_leader(tmp_path) as rig:
        await TokenClient(rig.channel).make("read", label="only a reader")
        secret = file.read_text().strip()
        client = TokenClient(rig.channel, secret)
        own = await client.make("admin")
        made_by_leader = (await who_am_i(rig.channel, secret)).token.token_id
        await TokenClient(rig.channel, own.secret).revoke(made_by_leader)

        assert not file.exists()


async def open_tokens(tmp_path: Path, clock: ManualClock, told: list[str], is_required: bool = False):
    """Tokens over a real database."""
    store = await open_store(f"sqlite:///{tmp_path}/leader.db", clock)
    file = DiskAdminFile(tmp_path)
    tokens = Tokens(store.tokens, file, OpenCalls(), clock, is_required, lambda secret, path: told.append(secret))
    await tokens.start()
    return store, tokens


async def test_an_expired_token_keeps_the_doors_locked_until_it_is_pruned(tmp_path):
    clock, told = ManualClock(), []
    store, tokens = await open_tokens(tmp_path, clock, told)
    _, secret = await tokens.create("an hour", ["admin"], 3600)

    clock.advance(3600)
    assert tokens.find(secret) is None
    assert tokens.enforced
    await tokens.tidy()
    assert told, "nobody could have got in any more"
    clock.advance(PRUNE_S - 1)
    assert tokens.enforced
    clock.advance(1)
    assert not tokens.enforced
    await tokens.tidy()
    assert [token.label for token in tokens.all()] == ["made by the leader"]
    assert [token.label for token in await store.tokens.all()] == ["made by the leader"]
    await store.close()


async def test_last_use_is_kept_to_the_minute_and_written_with_the_counts(tmp_path):
    clock, told = ManualClock(unix_s=1_760_000_030.0), []
    store, tokens = await open_tokens(tmp_path, clock, told)
    token, secret = await tokens.create("a", ["admin"], 0)

    for _ in range(100):
        tokens.find(secret)
        clock.advance(0.1)
    assert (await store.tokens.all())[0].last_used_s is None
    tokens.take_use(token.token_id, TokenUsage(requests=1, completion_tokens=5))
    await tokens.flush()

    stored = (await store.tokens.all())[0]
    assert stored.last_used_s == 1_760_000_030 // 60 * 60
    assert stored.usage == TokenUsage(requests=1, completion_tokens=5)
    await tokens.flush()
    assert (await store.tokens.all())[0].usage == stored.usage
    await store.close()


async def test_what_cannot_be_written_now_is_written_later(tmp_path):
    clock, told = ManualClock(), []
    store, tokens = await open_tokens(tmp_path, clock, told)
    token, _ = await tokens.create("a", ["admin"], 0)
    tokens.take_use(token.token_id, TokenUsage(requests=1))
    import sqlite3

    with sqlite3.connect(tmp_path / "leader.db") as other:
        other.execute("ALTER TABLE api_tokens RENAME COLUMN requests TO gone")
        await tokens.flush()
    tokens.take_use(token.token_id, TokenUsage(requests=1))
    with sqlite3.connect(tmp_path / "leader.db") as other:
        other.execute("ALTER TABLE api_tokens RENAME COLUMN gone TO requests")
    await tokens.flush()

    assert (await store.tokens.all())[0].usage == TokenUsage(requests=2)
    await store.close()
