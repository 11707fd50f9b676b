"""SwarmError <-> google.rpc.Status with ErrorInfo. The one place where a reason gets its gRPC code."""

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from swarm_core.errors import Reason, RemoteError, SwarmError

DOMAIN = "silentswarm"
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
    """The wire form of an error: code, words, ErrorInfo, and RetryInfo where a retry helps."""
    details = [error_details_pb2.ErrorInfo(reason=error.why.value, domain=DOMAIN, metadata=error.facts)]
    retry_s = RETRY_AFTER_S.get(error.why)
    if retry_s is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_s)))
    status = status_pb2.Status(code=_code_number(error.why), message=error.message)
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


def _reason(name: str) -> Reason:
    return Reason(name) if name in Reason.__members__ else Reason.INTERNAL


def _code_number(reason: Reason) -> int:
    return code_pb2.Code.Value(_CODES[reason].name)
