"""What happens around every call of a server: policy, errors, log. Servicers stay thin because of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from silentswarm.core.v1 import access_pb2
from swarm_core.errors import PermissionDenied, SwarmError

from swarm_rpc.errors import abort
from swarm_rpc.policy import access_of

log = structlog.get_logger()

# Raises Unauthenticated or PermissionDenied when the caller may not make a call of this access class.
Authorize = Callable[[int, grpc.HandlerCallDetails], Awaitable[None]]


async def allow_all(access: int, details: grpc.HandlerCallDetails) -> None:
    """Authorization while every listener is loopback: any class, but a class there must be."""


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Denies what has no policy, asks `authorize` for the rest, and maps every SwarmError to a status."""

    def __init__(self, authorize: Authorize = allow_all) -> None:
        self._authorize = authorize

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        handler = await continuation(details)
        if handler is None:
            return handler
        return _guard(handler, details, self._check)

    async def _check(self, details: grpc.HandlerCallDetails) -> None:
        access = access_of(details.method)
        if access == access_pb2.ACCESS_UNSPECIFIED:
            raise PermissionDenied(f"{details.method} has no access policy and is denied", method=details.method)
        await self._authorize(access, details)


def _guard(handler: Any, details: grpc.HandlerCallDetails, check: Callable[[Any], Awaitable[None]]) -> Any:
    """The same handler, checked before and mapped after."""

    async def unary(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            await check(details)
            return await (handler.unary_unary or handler.stream_unary)(request, context)
        except Exception as error:
            await _end(details.method, context, error)

    async def stream(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            await check(details)
            answers = (handler.unary_stream or handler.stream_stream)(request, context)
            if hasattr(answers, "__aiter__"):
                async for answer in answers:
                    yield answer
            else:
                await answers
        except Exception as error:
            await _end(details.method, context, error)

    wrap = {
        (False, False): (grpc.unary_unary_rpc_method_handler, unary),
        (True, False): (grpc.stream_unary_rpc_method_handler, unary),
        (False, True): (grpc.unary_stream_rpc_method_handler, stream),
        (True, True): (grpc.stream_stream_rpc_method_handler, stream),
    }
    make, behaviour = wrap[(handler.request_streaming, handler.response_streaming)]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


async def _end(method: str, context: grpc.aio.ServicerContext, error: Exception) -> None:
    """End the call with what went wrong. A bug of ours is logged whole and told in one word."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, SwarmError):
        log.error("call failed", method=method, exc_info=error)
        error = SwarmError(f"internal error in {method}; see the log of this process")
    await abort(context, error)
