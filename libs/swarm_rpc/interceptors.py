"""What happens around every call of a server: policy, limits, errors, log. Servicers stay thin because of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from silentswarm.core.v1 import access_pb2
from swarm_core.errors import PermissionDenied, SwarmError

from swarm_rpc.errors import abort
from swarm_rpc.policy import access_of, request_bytes_max
from swarm_rpc.reading import Unreadable, read_all, reader, refuse

log = structlog.get_logger()
SPEAK_S = 1.0  # for the first message of a call that is refused whatever it says

# Ends a call that runs, with a reason.
End = Callable[[SwarmError], None]
# What was granted: told how to end the call while it runs, it returns what to call when the call is over.
Grant = Callable[[End], Callable[[], None]]
# Raises Unauthenticated or PermissionDenied when the caller may not make a call of this access class. None: granted,
# and nothing more to say. Runs in the task of the call, so that a ContextVar it sets is the servicer's to read.
Authorize = Callable[[int, grpc.HandlerCallDetails], Awaitable[Grant | None]]


async def allow_all(access: int, details: grpc.HandlerCallDetails) -> None:
    """Authorization where no credential is known: any class, but a class there must be."""


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Denies what has no policy, asks `authorize` for the rest, refuses what cannot be read, maps every SwarmError."""

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
        return self._guard(handler, details)

    async def _check(self, details: grpc.HandlerCallDetails, handler: Any, request: Any) -> Grant | None:
        try:
            access = access_of(details.method)
            if access == access_pb2.ACCESS_UNSPECIFIED:
                raise PermissionDenied(f"{details.method} has no access policy and is denied", method=details.method)
            return await self._authorize(access, details)
        except SwarmError:
            if handler.request_streaming:
                await _let_speak(request)
            raise

    def _guard(self, handler: Any, details: grpc.HandlerCallDetails) -> Any:
        """The same handler, checked before and mapped after."""

        async def unary(request: Any, context: grpc.aio.ServicerContext) -> Any:
            over = _nothing
            try:
                over = _hold(await self._check(details, handler, request), _nothing_to_end)
                request = await _readable(request, handler, context, _nothing_to_end)
                return await (handler.unary_unary or handler.stream_unary)(request, context)
            except Exception as error:
                await _end(details.method, context, error)
            finally:
                over()

        async def stream(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            ending, over = _Ending(), _nothing
            try:
                over = _hold(await self._check(details, handler, request), ending.end)
                request = await _readable(request, handler, context, ending.end_from_elsewhere)
                answers = (handler.unary_stream or handler.stream_stream)(request, context)
                if hasattr(answers, "__aiter__"):
                    # Closed here: the garbage collector would let go who knows when of what the servicer holds.
                    async with contextlib.aclosing(answers):
                        async for answer in answers:
                            ending.is_sending = True
                            yield answer
                            ending.is_sending = False
                            ending.check()
                else:
                    await answers
            except Exception as error:
                await _end(details.method, context, error)
            except asyncio.CancelledError:
                if ending.take() is None:
                    raise
                await _end(details.method, context, ending.why)
            finally:
                over()

        wrap = {
            (False, False): (grpc.unary_unary_rpc_method_handler, unary),
            (True, False): (grpc.stream_unary_rpc_method_handler, unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, stream),
            (True, True): (grpc.stream_stream_rpc_method_handler, stream),
        }
        make, behaviour = wrap[(handler.request_streaming, handler.response_streaming)]
        read = reader(handler.request_deserializer, request_bytes_max(details.method))
        return make(behaviour, read, handler.response_serializer)


class _Ending:
    """Ends a streaming call from outside: by cancelling the task it runs in, once, with a reason.

    is_sending: an answer is on its way to a reader who may be slow. Cancelled then, grpc would send no status at all,
    and the reader would wait for ever; so the call ends behind that answer.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.why = SwarmError("")
        self.is_sending = False
        self._is_asked = False
        self._is_cancelled = False

    def end(self, why: SwarmError) -> None:
        """End it; the first reason stands."""
        if not self._is_asked:
            self._is_asked, self.why = True, why
            if not self.is_sending:
                self._task.cancel()
                self._is_cancelled = True

    def end_from_elsewhere(self, why: SwarmError) -> None:
        """End it, unless it is this very task that meets the reason: it is raised there anyway."""
        if asyncio.current_task() is not self._task:
            self.end(why)

    def take(self) -> SwarmError | None:
        """The reason, when it was this that cancelled the task; the task then goes on."""
        if not self._is_cancelled:
            return None
        self._task.uncancel()
        return self.why

    def check(self) -> None:
        """Raises the reason when it was to end while an answer was sent."""
        if self._is_asked:
            raise self.why


def _nothing() -> None:
    """A call is over that nobody holds."""


def _nothing_to_end(why: SwarmError) -> None:
    """A call with one answer ends by itself, soon."""


def _hold(grant: Grant | None, end: End) -> Callable[[], None]:
    return grant(end) if grant is not None else _nothing


async def _let_speak(requests: AsyncIterator[Any]) -> None:
    """Take the first message of who will be refused: a status that crosses what is written, a client in Python loses.

    grpc.aio then reports INTERNAL in place of it, and a fellow with a wrong credential would not learn why.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SPEAK_S):
            await anext(requests, None)


async def _readable(request: Any, handler: Any, context: grpc.aio.ServicerContext, end: End) -> Any:
    """The request, or the stream of them; ends the call where one cannot be read."""
    if handler.request_streaming:
        return read_all(request, end)
    if isinstance(request, Unreadable):
        await refuse(request, context)
    return request


async def _end(method: str, context: grpc.aio.ServicerContext, error: Exception) -> None:
    """End the call with what went wrong. A bug of ours is logged whole and told in one word."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, NotImplementedError):  # of a service whose newer methods nobody answers, such as health's List
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not answered here")
    if not isinstance(error, SwarmError):
        log.error("call failed", method=method, exc_info=error)
        error = SwarmError(f"internal error in {method}; see the log of this process")
    await abort(context, error)
