"""Reasons and failed replies between our errors and the contracts. No grpc, so that an engine may use it."""

from collections.abc import Mapping

from silentswarm.core.v1 import generation_pb2, reason_pb2
from swarm_core.errors import Reason, RemoteError, SwarmError

_PREFIX = "REASON_"


def reason_to_proto(reason: Reason) -> reason_pb2.Reason:
    """The number a reason travels with."""
    return reason_pb2.Reason.Value(_PREFIX + reason.value)


def reason_from_proto(number: int) -> Reason:
    """The reason a peer named; INTERNAL for one this version does not know."""
    try:
        name = reason_pb2.Reason.Name(number).removeprefix(_PREFIX)
    except ValueError:
        return Reason.INTERNAL
    return Reason(name) if name in Reason.__members__ else Reason.INTERNAL


def failed_event(error: SwarmError, sequence: int) -> generation_pb2.GenerationEvent:
    """The event that ends a reply with an error."""
    failed = generation_pb2.GenerationEvent.Failed(
        reason=reason_to_proto(error.why), message=error.message, metadata=error.facts
    )
    return generation_pb2.GenerationEvent(sequence=sequence, failed=failed)


def error_from_proto(reason: int, message: str, metadata: Mapping[str, str]) -> SwarmError:
    """The error a peer described."""
    facts: dict[str, object] = dict(metadata)
    return RemoteError(reason_from_proto(reason), message, **facts)
