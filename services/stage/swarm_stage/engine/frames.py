"""Frames of ring.v1 as the engine makes and checks them. No I/O."""

from silentswarm.core.v1 import reason_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import Reason, SwarmError


def failure_frame(session: int, stage_index: int, error: SwarmError) -> ring_pb2.Frame:
    """Tell stage 0, through the stages between, that a session cannot go on."""
    reason = reason_pb2.Reason.Value(f"REASON_{error.why.value}")
    failure = ring_pb2.Failure(reason=reason, message=error.message, stage_index=stage_index)
    return ring_pb2.Frame(session=session, failure=failure)


def reason_of(number: int) -> Reason:
    """The reason a peer named; INTERNAL for one this version does not know."""
    try:
        name = reason_pb2.Reason.Name(number).removeprefix("REASON_")
    except ValueError:
        return Reason.INTERNAL
    return Reason(name) if name in Reason.__members__ else Reason.INTERNAL
