"""SwarmError <-> google.rpc.Status with ErrorInfo. The one place where a reason gets its gRPC code."""

from collections.abc import Mapping

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from swarm_core.errors import Reason, RemoteError, SwarmError

DOMAIN = "silentswarm"
# In the trailers, percent-encoded and in base64, up to five times that; a client that is not ours may take only 8 KiB.
MESSAGE_BYTES_MAX = 1_500
FACTS_BYTES_MAX = 1_500
_CUT = " ... "
RETRY_AFTER_S = {Reason.OVERLOADED: 2, Reason.MODEL_NOT_READY: 5, Reason.UNAVAILABLE: 2}

_CODES = {
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.BAD_FRAME: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.MODEL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.FELLOW_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MODEL_NOT_READY: grpc.StatusCode.UNAVAILABLE,
    Reason.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.FELLOW_LOST: grpc.StatusCode.UNAVAILABLE,
    Reason.LINK_BROKEN: grpc.StatusCode.UNAVAILABLE,
    Reason.STAGE_FAILED: grpc.StatusCode.UNAVAILABLE,
    Reason.SERVABLE_CORRUPT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NO_FELLOW: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.TOO_FEW_FELLOWS: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_ENOUGH_MEMORY: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.CAPABILITY_MISSING: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.CONTEXT_TOO_LONG: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LOAD_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DISK: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.REPLY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.SESSION_NOT_KEPT: grpc.StatusCode.ABORTED,
    Reason.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.STALE_EPOCH: grpc.StatusCode.ABORTED,
    Reason.CONFLICT: grpc.StatusCode.ABORTED,
    Reason.HASH_MISMATCH: grpc.StatusCode.DATA_LOSS,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
}


def grpc_code(reason: Reason) -> grpc.StatusCode:
    """The gRPC code a reason travels with."""
    return _CODES[reason]


def status_of(error: SwarmError) -> status_pb2.Status:
    """The wire form of an error: code, words, ErrorInfo, and RetryInfo where a retry helps.

    Words and facts are cut in the middle to MESSAGE_BYTES_MAX and FACTS_BYTES_MAX of UTF-8: what does not fit into the
    trailers would arrive as another error.
    """
    facts = _bound_facts(error.facts)
    details = [error_details_pb2.ErrorInfo(reason=error.why.value, domain=DOMAIN, metadata=facts)]
    retry_s = _retry_after_s(error)
    if retry_s is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_s)))
    status = status_pb2.Status(code=_code_number(error.why), message=_cut(error.message, MESSAGE_BYTES_MAX))
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


async def abort(context: grpc.aio.ServicerContext, error: SwarmError) -> None:
    """End a call with an error; never returns."""
    status = rpc_status.to_status(status_of(error))
    await context.abort(status.code, status.details, status.trailing_metadata)


def error_of(call: grpc.RpcError) -> SwarmError:
    """The error a peer sent, or the closest reason for one that is not ours (a dead channel, a passed deadline)."""
    try:
        status = rpc_status.from_call(call)
    except (ValueError, AttributeError):
        status = None
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
            return RemoteError(_reason(info.reason), status.message, **dict(info.metadata))
    reason = {
        grpc.StatusCode.UNAVAILABLE: Reason.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE,
        grpc.StatusCode.CANCELLED: Reason.CANCELLED,
        grpc.StatusCode.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED: Reason.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
        grpc.StatusCode.INVALID_ARGUMENT: Reason.BAD_REQUEST,
    }.get(call.code(), Reason.INTERNAL)
    return RemoteError(reason, call.details() or call.code().name)


def _retry_after_s(error: SwarmError) -> int | None:
    """What the error itself says (retry_after_s, whole seconds), else what is usual for its reason; None for none."""
    said = error.facts.get("retry_after_s", "")
    return int(said) if said.isdecimal() and 0 < int(said[:6]) < 86_400 else RETRY_AFTER_S.get(error.why)


def _bound_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that fit, short ones first: numbers stay, a long list gives way."""
    left_bytes = FACTS_BYTES_MAX
    bounded: dict[str, str] = {}
    for name, fact in sorted(facts.items(), key=lambda item: len(item[1])):
        left_bytes -= len(name.encode())
        if left_bytes <= 0:
            break
        bounded[name] = _cut(fact, left_bytes)
        left_bytes -= len(bounded[name].encode())
    return bounded


def _cut(text: str, bytes_max: int) -> str:
    """The text when it fits, else its beginning and its end."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    side = max(0, bytes_max - len(_CUT)) // 2
    head, tail = encoded[:side], encoded[len(encoded) - side :]
    return head.decode(errors="ignore") + _CUT[:bytes_max] + tail.decode(errors="ignore")


def _reason(name: str) -> Reason:
    return Reason(name) if name in Reason.__members__ else Reason.INTERNAL


def _code_number(reason: Reason) -> int:
    return code_pb2.Code.Value(_CODES[reason].name)
