"""leader.v1.Tokens: who may use this leader. Thin."""

import grpc
from silentswarm.leader.v1 import tokens_pb2, tokens_pb2_grpc


class TokensServicer(tokens_pb2_grpc.TokensServicer):
    """Tells callers who they are."""

    async def GetSelf(
        self, request: tokens_pb2.GetSelfRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.GetSelfResponse:
        return tokens_pb2.GetSelfResponse(enforced=False)
