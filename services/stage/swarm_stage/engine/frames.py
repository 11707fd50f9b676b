"""Frames of ring.v1 as the engine makes them. No I/O."""

from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import SwarmError
from swarm_rpc.reasons import error_from_proto, reason_to_proto


def failure_frame(session: int, stage_index: int, error: SwarmError) -> ring_pb2.Frame:
    """Tell stage 0, through the stages between, that a session cannot go on."""
    failure = ring_pb2.Failure(
        reason=reason_to_proto(error.why), message=error.message, stage_index=stage_index, metadata=error.facts
    )
    return ring_pb2.Frame(session=session, failure=failure)


def failure_error(failure: ring_pb2.Failure) -> SwarmError:
    """What a stage failed a session with."""
    return error_from_proto(failure.reason, f"stage {failure.stage_index}: {failure.message}", failure.metadata)
