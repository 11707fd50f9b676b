"""Callers of a leader under test: people with tokens, machines with credentials, and those with nothing."""

from typing import Any

import grpc
from silentswarm.leader.v1 import tokens_pb2, tokens_pb2_grpc

Metadata = tuple[tuple[str, str], ...]


def bearing(secret: str) -> Metadata:
    """What a caller with this secret sends; "" sends nothing."""
    return (("authorization", f"Bearer {secret}"),) if secret else ()


class TokenClient:
    """An admin at the Tokens service."""

    def __init__(self, channel: grpc.aio.Channel, secret: str = "") -> None:
        self.stub = tokens_pb2_grpc.TokensStub(channel)
        self.metadata = bearing(secret)

    async def make(self, *scopes: str, label: str = "test", expires_in_s: int = 0) -> tokens_pb2.CreateTokenResponse:
        """A new token with its secret."""
        request = tokens_pb2.CreateTokenRequest(label=label, scopes=scopes, expires_in_s=expires_in_s)
        return await self.stub.CreateToken(request, metadata=self.metadata)

    async def revoke(self, token_id: str) -> None:
        """End one."""
        await self.stub.RevokeToken(tokens_pb2.RevokeTokenRequest(token_id=token_id), metadata=self.metadata)

    async def all(self) -> dict[str, tokens_pb2.ApiToken]:
        """By id, newest first."""
        listed = await self.stub.ListTokens(tokens_pb2.ListTokensRequest(), metadata=self.metadata)
        return {token.token_id: token for token in listed.tokens}

    async def invite(self, **request: Any) -> tokens_pb2.CreateJoinTokenResponse:
        """A new join token with its secret."""
        return await self.stub.CreateJoinToken(tokens_pb2.CreateJoinTokenRequest(**request), metadata=self.metadata)

    async def invitations(self) -> dict[str, tokens_pb2.JoinToken]:
        """By id, newest first."""
        listed = await self.stub.ListJoinTokens(tokens_pb2.ListJoinTokensRequest(), metadata=self.metadata)
        return {token.join_token_id: token for token in listed.join_tokens}


async def who_am_i(channel: grpc.aio.Channel, secret: str) -> tokens_pb2.GetSelfResponse:
    """What the leader says of the bearer of a secret. Raises its refusal."""
    stub = tokens_pb2_grpc.TokensStub(channel)
    return await stub.GetSelf(tokens_pb2.GetSelfRequest(), metadata=bearing(secret))
