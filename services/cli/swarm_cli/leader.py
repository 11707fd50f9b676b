"""The leader as the commands see it: stubs, a deadline on every call, errors as SwarmErrors. Shows nothing."""

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message import Message
from silentswarm.leader.v1 import (
    fleet_pb2_grpc,
    inference_pb2_grpc,
    logs_pb2_grpc,
    models_pb2_grpc,
    resilience_pb2_grpc,
    serving_pb2_grpc,
    status_pb2_grpc,
    telemetry_pb2_grpc,
    tokens_pb2_grpc,
    trust_pb2_grpc,
)
from swarm_core.errors import SwarmError, Unavailable
from swarm_core.listen import join_host_port, split_host_port
from swarm_rpc.channel import dial
from swarm_rpc.leader_trust import check_plaintext, trust_for
from swarm_rpc.tls import Trust
from swarm_rpc.tls_words import explain

from swarm_cli.config import CliConfig
from swarm_cli.credential import find_leader_ca, find_token, metadata_of
from swarm_cli.failures import LeaderUnreachable, failure_of


class Leader:
    """One connection to a leader. Used as `async with Leader(config) as leader`."""

    def __init__(self, config: CliConfig) -> None:
        """Raises BadRequest when config.leader is not HOST:PORT, or may not be reached without TLS."""
        self.config = config
        self.address = join_host_port(*split_host_port(config.leader))
        if not config.leader_ca:
            check_plaintext(self.address, config.allow_insecure)
        self._trust: Trust | None = None
        self._token = ""

    async def __aenter__(self) -> "Leader":
        return await self.connect()

    async def connect(self) -> "Leader":
        """Know the leader, and be ready to call; for those who close it themselves.

        Raises BadRequest (SWARM_LEADER_CA), PermissionDenied (another leader than the pin's), LeaderUnreachable.
        """
        try:
            self._trust = await trust_for(self.address, find_leader_ca(self.config, self.address))
        except Unavailable as error:
            raise LeaderUnreachable(error.message, address=self.address) from None
        self._channel = dial(self.address, trust=self._trust)
        self.models = models_pb2_grpc.ModelsStub(self._channel)
        self.serving = serving_pb2_grpc.ServingStub(self._channel)
        self.inference = inference_pb2_grpc.InferenceStub(self._channel)
        self.fleet = fleet_pb2_grpc.FleetStub(self._channel)
        self.resilience = resilience_pb2_grpc.ResilienceStub(self._channel)
        self.status = status_pb2_grpc.StatusStub(self._channel)
        self.telemetry = telemetry_pb2_grpc.TelemetryStub(self._channel)
        self.logs = logs_pb2_grpc.LogsStub(self._channel)
        self.tokens = tokens_pb2_grpc.TokensStub(self._channel)
        self.trust = trust_pb2_grpc.TrustStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; calls in flight are cancelled."""
        await self._channel.close(grace=None)

    async def ask(self, method: Callable[..., Any], request: Message, timeout_s: float | None = None) -> Any:
        """One answer. timeout_s: None is the configured short deadline. Raises SwarmError."""
        try:
            within_s = timeout_s or self.config.call_timeout_s
            return await method(request, timeout=within_s, metadata=self._metadata())
        except grpc.aio.AioRpcError as call:
            raise await self._explain(failure_of(call, self.address)) from None

    async def follow(self, method: Callable[..., Any], request: Message, timeout_s: float) -> AsyncGenerator[Any, None]:
        """Answers as they come; leaving the loop cancels the call. Raises SwarmError."""
        call = method(request, timeout=timeout_s, metadata=self._metadata())
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as failed:
            raise await self._explain(failure_of(failed, self.address)) from None
        finally:
            call.cancel()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """The token, looked for until there is one: a leader that starts makes its first."""
        self._token = self._token or find_token(self.config, self.address)
        return metadata_of(self._token)

    async def _explain(self, failure: SwarmError) -> SwarmError:
        """TLS may be to blame where nothing answers."""
        told = await explain(self.address, self._trust) if isinstance(failure, LeaderUnreachable) else ""
        return LeaderUnreachable(told, address=self.address) if told else failure
