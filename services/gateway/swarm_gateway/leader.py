"""The gateway's side of the leader: one channel, calls with the token of who asks, failures typed. No HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import CapabilityMissing, DeadlinePassed, Reason, RemoteError, SwarmError, Unavailable
from swarm_rpc.errors import error_of
from swarm_rpc.forwarded import FORWARDED

from swarm_gateway.problems import HttpProblem, body_too_large

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Explain = Callable[[], Coroutine[Any, Any, str]]
EXPLAIN_AGAIN_S = 15.0
_TOKEN: ContextVar[str] = ContextVar("token", default="")  # of whoever sent the request that is being answered
_INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["Inference"].methods_by_name


class LeaderTooOld(CapabilityMissing):
    """The leader does not know this call."""


class LeaderError(RemoteError):
    """A failure the leader reported. retry_after_s: what its RetryInfo said, whole seconds, else None."""

    def __init__(self, reason: Reason, message: str, retry_after_s: int | None, /, **facts: object) -> None:
        super().__init__(reason, message, **facts)
        self.retry_after_s = retry_after_s


class Events(Generic[M]):
    """A running server stream."""

    def __init__(self, call: Any, leader: "Leader", timeout_s: float) -> None:
        self._call = call
        self._leader = leader
        self._timeout_s = timeout_s

    async def read(self) -> M | None:
        """The next message, None at the end. Raises SwarmError when the call failed or the gateway stops."""
        message = await self._leader.answer(self._call.read(), self._timeout_s)
        return None if message is grpc.aio.EOF else message


class Leader:
    """Calls to one leader over one shared channel. Never waits for a leader that is not there."""

    def __init__(self, channel: grpc.aio.Channel, address: str, explain: Explain | None = None) -> None:
        """explain: looks for the reason why the leader is not reached, "" for none; runs beside calls."""
        self._channel = channel
        self._address = address
        self._explain = explain
        self._explaining: asyncio.Task[str] | None = None
        self._explained_s = -EXPLAIN_AGAIN_S
        self.stopping = False

    async def call(self, method: MethodDescriptor, request: Message, timeout_s: float) -> Message:
        """One answer. Raises SwarmError, HttpProblem when the request is larger than the leader takes."""
        call = self._channel.unary_unary(*self._stub(method))
        self._check_open()
        return await self.answer(call(request, timeout=timeout_s, metadata=_metadata()), timeout_s)

    @asynccontextmanager
    async def stream(self, method: MethodDescriptor, request: Message, timeout_s: float) -> AsyncIterator[Events[Any]]:
        """A server stream; leaving the block cancels it at once, on the leader too."""
        stub = self._channel.unary_stream(*self._stub(method))
        self._check_open()
        call = stub(request, timeout=timeout_s, metadata=_metadata())
        try:
            yield Events(call, self, timeout_s)
        finally:
            call.cancel()

    def generate(self, request: inference_pb2.GenerateRequest, timeout_s: float) -> Any:
        """A reply; use as `async with`."""
        return self.stream(_INFERENCE["Generate"], request, timeout_s)

    def resume(self, request: inference_pb2.ResumeRequest, timeout_s: float) -> Any:
        """The rest of a reply whose call broke off; use as `async with`."""
        return self.stream(_INFERENCE["Resume"], request, timeout_s)

    @property
    def is_connected(self) -> bool:
        """Whether the leader was there when it was last heard of."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def close(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for grace_s, then end them with Unavailable."""
        self.stopping = True
        await self._channel.close(grace_s)

    async def answer(self, waiting: Awaitable[T], timeout_s: float) -> T:
        """Await one answer of a call, with failures as `failure` words them."""
        try:
            return await waiting
        except grpc.RpcError as error:
            raise self.failure(error, timeout_s) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Cancelled without anyone cancelling this task: the channel was closed under the call.
            if self.stopping and task is not None and not task.cancelling():
                raise Unavailable("the gateway is stopping") from None
            raise

    def failure(self, call: grpc.RpcError, timeout_s: float) -> SwarmError | HttpProblem:
        """What a failed call means. A failure the leader did not word itself is the channel's, and is worded here."""
        error = error_of(call)
        status = _status_of(call)
        if status is not None:
            return LeaderError(error.why, error.message, _retry_after_s(status), **error.facts)
        if call.code() is grpc.StatusCode.UNIMPLEMENTED:
            return LeaderTooOld(f"the leader at {self._address} is too old for this call")
        if error.why is Reason.UNAVAILABLE:
            words = f"the leader at {self._address} does not answer; start it (swarm-leader) or correct SWARM_LEADER"
            return Unavailable(self._explanation() or words)
        if error.why is Reason.DEADLINE:
            return DeadlinePassed(f"the leader at {self._address} did not finish within {timeout_s:g} s")
        if error.why is Reason.OVERLOADED and "larger than max" in error.message:
            return body_too_large(_bytes_max(error.message))
        return error

    def _explanation(self) -> str:
        """What was found last; looked for again every EXPLAIN_AGAIN_S while the leader is away."""
        known, now_s = self._explaining, asyncio.get_running_loop().time()
        if self._explain is not None and now_s - self._explained_s >= EXPLAIN_AGAIN_S and not self.stopping:
            self._explained_s = now_s
            self._explaining = asyncio.create_task(self._explain())
        is_known = known is not None and known.done() and not known.cancelled() and known.exception() is None
        return known.result() if known is not None and is_known else ""

    def _stub(self, method: MethodDescriptor) -> tuple[str, Any, Any]:
        answer = message_factory.GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{method.name}"
        return path, message_factory.GetMessageClass(method.input_type).SerializeToString, answer.FromString

    def _check_open(self) -> None:
        if self.stopping:
            raise Unavailable("the gateway is stopping")


def present(token: str) -> None:
    """Calls of this task, and of tasks it starts, carry this bearer token. "" is none."""
    _TOKEN.set(token)


def _metadata() -> tuple[tuple[str, str], ...]:
    token = _TOKEN.get()
    marked = ((FORWARDED, "1"),)
    return (*marked, ("authorization", f"Bearer {token}")) if token else marked


def _status_of(call: grpc.RpcError) -> Any:
    try:
        return rpc_status.from_call(call)
    except (ValueError, AttributeError):
        return None


def _retry_after_s(status: Any) -> int | None:
    for detail in status.details:
        retry = error_details_pb2.RetryInfo()
        if detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
            return max(1, round(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9))
    return None


def _bytes_max(message: str) -> int:
    """The limit in grpc's own words, "... larger than max (123 vs. 45)"; 0 when it words it otherwise."""
    limit = message.rpartition("vs.")[2].strip(" )")
    return int(limit) if limit.isdigit() else 0
