"""leader.v1.Tokens: who may use this leader, and which machines may join it. Thin."""

import grpc
from silentswarm.leader.v1 import tokens_pb2, tokens_pb2_grpc

from swarm_leader.domain.records import ApiTokenRecord, JoinTokenRecord
from swarm_leader.flows.join_tokens import JoinTokens
from swarm_leader.flows.tokens import Tokens
from swarm_leader.rpc.access import current_caller


class TokensServicer(tokens_pb2_grpc.TokensServicer):
    """Tokens of people, and join tokens of machines."""

    def __init__(self, tokens: Tokens, join_tokens: JoinTokens) -> None:
        self._tokens = tokens
        self._join_tokens = join_tokens

    async def CreateToken(
        self, request: tokens_pb2.CreateTokenRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.CreateTokenResponse:
        token, secret = await self._tokens.create(request.label, request.scopes, request.expires_in_s)
        return tokens_pb2.CreateTokenResponse(token=_token(token), secret=secret)

    async def ListTokens(
        self, request: tokens_pb2.ListTokensRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.ListTokensResponse:
        tokens = [_token(token) for token in self._tokens.all()]
        return tokens_pb2.ListTokensResponse(tokens=tokens, enforced=self._tokens.enforced)

    async def RevokeToken(
        self, request: tokens_pb2.RevokeTokenRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.RevokeTokenResponse:
        await self._tokens.revoke(request.token_id)
        return tokens_pb2.RevokeTokenResponse()

    async def GetSelf(
        self, request: tokens_pb2.GetSelfRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.GetSelfResponse:
        token = self._tokens.get(current_caller().token_id)
        return tokens_pb2.GetSelfResponse(enforced=self._tokens.enforced, token=_token(token) if token else None)

    async def CreateJoinToken(
        self, request: tokens_pb2.CreateJoinTokenRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.CreateJoinTokenResponse:
        token, secret = await self._join_tokens.create(request.label, request.expires_in_s, request.uses)
        return tokens_pb2.CreateJoinTokenResponse(join_token=_join_token(token), secret=secret)

    async def ListJoinTokens(
        self, request: tokens_pb2.ListJoinTokensRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.ListJoinTokensResponse:
        tokens = await self._join_tokens.all()
        return tokens_pb2.ListJoinTokensResponse(join_tokens=[_join_token(token) for token in tokens])

    async def RevokeJoinToken(
        self, request: tokens_pb2.RevokeJoinTokenRequest, context: grpc.aio.ServicerContext
    ) -> tokens_pb2.RevokeJoinTokenResponse:
        await self._join_tokens.revoke(request.join_token_id)
        return tokens_pb2.RevokeJoinTokenResponse()


def _token(token: ApiTokenRecord) -> tokens_pb2.ApiToken:
    used = token.usage
    return tokens_pb2.ApiToken(
        token_id=token.token_id,
        label=token.label,
        scopes=token.scopes,
        created_s=token.created_s,
        expires_s=token.expires_s,
        revoked_s=token.revoked_s,
        last_used_s=token.last_used_s,
        usage=tokens_pb2.TokenUsage(
            requests=used.requests,
            prompt_tokens=used.prompt_tokens,
            completion_tokens=used.completion_tokens,
            cancelled=used.cancelled,
        ),
    )


def _join_token(token: JoinTokenRecord) -> tokens_pb2.JoinToken:
    return tokens_pb2.JoinToken(
        join_token_id=token.join_token_id,
        label=token.label,
        created_s=token.created_s,
        expires_s=token.expires_s,
        uses_left=token.uses_left,
        used=token.used,
        revoked_s=token.revoked_s,
    )
