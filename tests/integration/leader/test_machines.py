"""Machines prove who they are: join tokens, credentials, one process a machine, and each for itself only."""

import asyncio
import time

import grpc
import pytest
from silentswarm.fellow.v1 import inference_link_pb2, inference_link_pb2_grpc, transfer_pb2, transfer_pb2_grpc
from silentswarm.leader.v1 import fleet_pb2, tokens_pb2
from swarm_core.errors import Reason, SwarmError
from swarm_leader.rpc.access import NODE_CALLS_MAX
from swarm_rpc.errors import error_of

from tests.integration.leader.callers import TokenClient, bearing
from tests.integration.leader.rig import MODEL, refusal_of, running_leader, until
from tests.integration.leader.scripted_fellow import ScriptedFellow, joined


async def refused(address: str, fellow: ScriptedFellow) -> SwarmError:
    """Why a fellow is not let in."""
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await fellow.join(address)
        return error_of(refusal.value)
    finally:
        await fellow.leave()


async def locked(rig) -> TokenClient:
    """An admin of a leader that asks for tokens from now on."""
    made = await TokenClient(rig.channel).make("admin")
    return TokenClient(rig.channel, made.secret)


async def test_where_tokens_are_asked_for_a_machine_joins_by_a_join_token_alone(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        made = await admin.invite(label="garage")

        nothing = await refused(rig.address, ScriptedFellow("kitchen"))
        wrong = await refused(rig.address, ScriptedFellow("kitchen", join_token="swarm-join-guess"))
        another_kind = ScriptedFellow("kitchen", join_token=dict(admin.metadata)["authorization"].split()[1])
        people = await refused(rig.address, another_kind)
        async with joined(rig.address, ScriptedFellow("kitchen", join_token=made.secret)) as (kitchen,):
            listed = (await admin.invitations())[made.join_token.join_token_id]

    assert [one.why for one in (nothing, wrong, people)] == [Reason.UNAUTHENTICATED] * 3
    assert {one.message for one in (nothing, wrong, people)} == {nothing.message}
    assert "swarm join-token create" in nothing.message
    assert kitchen.registered.node_credential.startswith("sk-node-")
    assert len(kitchen.registered.node_credential) >= len("sk-node-") + 43
    assert (listed.used, listed.uses_left, listed.label) == (1, 0, "garage")


async def test_two_machines_race_for_the_last_use_and_one_wins(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        made = await admin.invite(uses=1)
        fellows = [ScriptedFellow(f"machine-{number}", join_token=made.secret) for number in range(6)]

        results = await asyncio.gather(*(fellow.join(rig.address) for fellow in fellows), return_exceptions=True)

        losers = [error_of(result) for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert len(losers) == 5
        assert {loser.why for loser in losers} == {Reason.UNAUTHENTICATED}
        assert len((await rig.fleet.ListFellows(fleet_pb2.ListFellowsRequest(), metadata=admin.metadata)).fellows) == 1
        for fellow in fellows:
            await fellow.leave()


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_join_token_that_is_over_lets_nobody_in_and_nobody_out(tmp_path, end):
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        made = await admin.invite(uses=5, expires_in_s=2 if end == "expired" else 0)
        async with joined(rig.address, ScriptedFellow("kitchen", join_token=made.secret)) as (kitchen,):
            if end == "revoked":
                request = tokens_pb2.RevokeJoinTokenRequest(join_token_id=made.join_token.join_token_id)
                await admin.stub.RevokeJoinToken(request, metadata=admin.metadata)
            else:
                while time.time() <= made.join_token.expires_s:
                    await asyncio.sleep(0.05)

            late = await refused(rig.address, ScriptedFellow("attic", join_token=made.secret))
            await kitchen.leave()
            await kitchen.join(rig.address)

            assert late.why is Reason.UNAUTHENTICATED
            assert kitchen.is_connected


async def test_the_pin_behind_a_join_token_is_not_part_of_its_secret(tmp_path):
    async with running_leader(tmp_path, join_token="the operator's own") as rig:
        admin = await locked(rig)
        made = await admin.invite()
        pinned = ScriptedFellow("kitchen", join_token=f"{made.secret.partition('.')[0]}.{'0a' * 32}")
        operators = ScriptedFellow("attic", join_token=f"the operator's own.{'0a' * 32}")

        async with joined(rig.address, pinned, operators):
            assert pinned.is_connected
            assert operators.is_connected


async def test_a_machine_whose_first_answer_was_lost_takes_no_second_use(tmp_path):
    """It never presented the credential it was given: it cannot have kept it."""
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        made = await admin.invite(uses=1)
        kitchen = ScriptedFellow("kitchen", join_token=made.secret)
        await kitchen.connect_only(rig.address)
        first = kitchen.credential
        await kitchen.leave()
        kitchen.credential = ""

        async with joined(rig.address, kitchen):
            assert kitchen.credential
            assert kitchen.credential != first
            assert (await admin.invitations())[made.join_token.join_token_id].used == 1


async def test_a_known_machine_without_its_credential_is_refused_with_the_way_out(tmp_path):
    kitchen = ScriptedFellow("kitchen", join_token="permanent")
    async with running_leader(tmp_path, join_token="permanent") as rig, joined(rig.address, kitchen):
        await until(lambda: rig.leader.registry.find("kitchen").record.credential_confirmed, "its credential is used")
        await kitchen.leave()
        right = kitchen.credential
        refusals = []
        for wrong in ("", "sk-node-wrong", right + "x"):
            twin = ScriptedFellow("kitchen", join_token="permanent")
            twin.credential = wrong
            refusals.append(await refused(rig.address, twin))

        assert {(one.why, one.message) for one in refusals} == {(Reason.UNAUTHENTICATED, refusals[0].message)}
        assert "`swarm fellows delete kitchen`" in refusals[0].message
        await kitchen.join(rig.address)
        assert kitchen.credential == right
        assert kitchen.registered.node_credential == ""


async def test_a_deleted_machines_credential_is_void_and_it_joins_again_by_a_token(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        first, second = await admin.invite(), await admin.invite()
        async with joined(rig.address, ScriptedFellow("kitchen", join_token=first.secret)) as (kitchen,):
            await until(lambda: kitchen.is_connected, "connected")
            old = kitchen.credential
            await rig.fleet.DeleteFellow(fleet_pb2.DeleteFellowRequest(fellow_id="kitchen"), metadata=admin.metadata)
            await until(lambda: kitchen.error is not None, "its link is ended")
            await until(lambda: kitchen.serve_ended, "its replies' link too")
            await kitchen.leave()

            stubborn = await refused(rig.address, kitchen)
            kitchen.join_token = second.secret
            await kitchen.join(rig.address)

            assert stubborn.why is Reason.UNAUTHENTICATED
            assert kitchen.credential != old


async def test_another_process_of_the_same_machine_is_refused_while_the_first_lives(tmp_path):
    first, second = ScriptedFellow("kitchen"), ScriptedFellow("kitchen")
    first.process_nonce, second.process_nonce = "one", "two"
    async with running_leader(tmp_path) as rig, joined(rig.address, first):
        silent = ScriptedFellow("kitchen")  # says no word of its process
        silent.credential = second.credential = first.credential
        for other in (silent, second):
            refusal = await refused(rig.address, other)
            assert refusal.why is Reason.CONFLICT
            assert "another process with the same identity" in refusal.message
        assert first.is_connected
        assert first.error is None

        await first.leave()
        async with joined(rig.address, second):
            assert second.registered.fellow_id == first.registered.fellow_id


async def test_a_first_process_that_is_silent_for_a_lease_gives_way(tmp_path):
    """Its link is open and dead: no FIN ever came. The second is let in once the lease is over, not before."""
    first, second = ScriptedFellow("kitchen"), ScriptedFellow("kitchen")
    first.process_nonce, second.process_nonce = "one", "two"
    async with running_leader(tmp_path) as rig, joined(rig.address, first):
        second.credential = first.credential
        first.beats = False
        assert (await refused(rig.address, second)).why is Reason.CONFLICT
        fellow = rig.leader.registry.find("kitchen")
        await until(lambda: not rig.leader.registry.leases.is_running(fellow.fellow_id), "the lease is over")

        async with joined(rig.address, second):
            assert second.is_connected


async def test_requests_of_a_machine_go_to_the_process_that_registered_and_no_other(tmp_path):
    """A copy of its state folder holds the same credential: it gets no prompts, and the true one's replies go on."""
    first = ScriptedFellow("kitchen")
    first.process_nonce = "one"
    async with running_leader(tmp_path) as rig, joined(rig.address, first):
        stub = inference_link_pb2_grpc.InferenceLinkStub(rig.channel)
        for nonce in ("", "two"):
            hello = inference_link_pb2.InferenceHello(fellow_id=first.registered.fellow_id, process_nonce=nonce)

            async def as_a_copy(hello=hello):
                yield inference_link_pb2.ServeRequest(hello=hello)
                await asyncio.Event().wait()

            refusal = await refusal_of(stub.Serve(as_a_copy(), metadata=first.metadata))
            assert refusal.why is Reason.CONFLICT
            assert "by another process" in refusal.message
        assert first.is_connected
        assert first.error is None


async def test_a_machine_speaks_for_itself_only(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("a"), ScriptedFellow("b")) as (a, b):
        hello = inference_link_pb2.InferenceHello(fellow_id=b.registered.fellow_id)

        async def as_b():
            yield inference_link_pb2.ServeRequest(hello=hello)
            await asyncio.Event().wait()

        stub = inference_link_pb2_grpc.InferenceLinkStub(rig.channel)
        served = await refusal_of(stub.Serve(as_b(), metadata=a.metadata))
        twin = ScriptedFellow("b")
        twin.credential = a.credential
        registered = await refused(rig.address, twin)
        stranger = ScriptedFellow("c")
        stranger.credential = a.credential
        another = await refused(rig.address, stranger)

        assert [one.why for one in (served, registered, another)] == [Reason.PERMISSION_DENIED] * 3
        assert a.is_connected
        assert b.is_connected
        assert b.error is None


async def test_a_machine_gets_the_models_it_holds_a_stage_of_and_no_others(tmp_path):
    async with running_leader(tmp_path) as rig, joined(rig.address, ScriptedFellow("a"), ScriptedFellow("b")) as (a, b):
        await rig.load_ready(fellow_ids=["a"])
        stub = transfer_pb2_grpc.TransferStub(rig.channel)

        def manifest(metadata):
            return stub.GetManifest(transfer_pb2.GetManifestRequest(model_id=MODEL), metadata=metadata)

        got = await manifest(a.metadata)
        others = await refusal_of(manifest(b.metadata))
        fetched = await refusal_of(
            stub.Fetch(
                transfer_pb2.FetchRequest(model_id=MODEL, manifest_sha256=got.manifest_sha256), metadata=b.metadata
            )
        )
        nobody = await refusal_of(manifest(()))

    assert got.manifest_json
    assert (others.why, fetched.why) == (Reason.PERMISSION_DENIED, Reason.PERMISSION_DENIED)
    assert nobody.why is Reason.UNAUTHENTICATED


async def test_tokens_of_people_open_nothing_of_machines_and_the_other_way_round(tmp_path):
    async with running_leader(tmp_path) as rig:
        admin = await locked(rig)
        made = await admin.invite()
        async with joined(rig.address, ScriptedFellow("kitchen", join_token=made.secret)) as (kitchen,):
            stub = transfer_pb2_grpc.TransferStub(rig.channel)
            request = transfer_pb2.GetManifestRequest(model_id=MODEL)
            as_admin = await refusal_of(stub.GetManifest(request, metadata=admin.metadata))
            listing = fleet_pb2.ListFellowsRequest()
            as_machine = await refusal_of(rig.fleet.ListFellows(listing, metadata=kitchen.metadata))
            by_invitation = await refusal_of(rig.fleet.ListFellows(listing, metadata=bearing(made.secret)))

    assert (as_admin.why, as_machine.why) == (Reason.PERMISSION_DENIED, Reason.PERMISSION_DENIED)
    assert by_invitation.why is Reason.UNAUTHENTICATED


async def test_one_machine_has_so_many_calls_at_once_and_no_more(tmp_path):
    """Its own fault alone: another machine is served as before."""
    a, b = ScriptedFellow("a"), ScriptedFellow("b")
    async with running_leader(tmp_path) as rig, joined(rig.address, a, b):
        stub = inference_link_pb2_grpc.InferenceLinkStub(rig.channel)
        calls = [stub.Serve(metadata=a.metadata) for _ in range(200)]
        codes = [asyncio.create_task(call.code()) for call in calls]
        await until(lambda: sum(code.done() for code in codes) >= 200 - NODE_CALLS_MAX, "the others are refused")

        refusals = {code.result() for code in codes if code.done()}
        assert refusals == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert await rig.fleet.PingFellow(fleet_pb2.PingFellowRequest(fellow_id="b"))
        for call in calls:
            call.cancel()
        await asyncio.gather(*codes, return_exceptions=True)
