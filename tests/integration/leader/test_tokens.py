"""Tokens of people and programs: made, shown once, judged, ended, counted. A real leader on a real socket."""

from silentswarm.leader.v1 import tokens_pb2, tokens_pb2_grpc

from tests.integration.leader.rig import running_leader


async def test_an_open_leader_says_that_it_asks_for_no_token(tmp_path):
    async with running_leader(tmp_path) as rig:
        answer = await tokens_pb2_grpc.TokensStub(rig.channel).GetSelf(tokens_pb2.GetSelfRequest())

    assert not answer.enforced
    assert not answer.HasField("token")
