"""Frames of ring.v1 as the engine makes them. No I/O."""

from silentswarm.core.v1 import tensor_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import SwarmError
from swarm_rpc.reasons import error_from_proto, reason_to_proto

from swarm_stage.engine.steps import Outcome, WireHidden


def add_hidden(
    batch: ring_pb2.FrameBatch, session: int, pos: int, outcome: Outcome, sample: bool, trace: ring_pb2.Trace
) -> ring_pb2.Frame:
    """Add a step's hidden states to a batch. Built in place: a message given to another one is copied whole."""
    frame = batch.frames.add(session=session, pos=pos, traces=[trace])
    if outcome.hidden is not None:
        put_hidden(frame.hidden, outcome.hidden)
    frame.hidden.sample = sample
    return frame


def put_hidden(body: ring_pb2.Hidden, hidden: WireHidden) -> None:
    """Make these the hidden states of a frame, in place of any it has."""
    if isinstance(hidden, tensor_pb2.CodedTensor):
        body.ClearField("hidden")
        body.coded.CopyFrom(hidden)
    else:
        body.ClearField("coded")
        body.hidden.CopyFrom(hidden)


def failure_frame(session: int, stage_index: int, error: SwarmError) -> ring_pb2.Frame:
    """Tell stage 0, through the stages between, that a session cannot go on."""
    failure = ring_pb2.Failure(
        reason=reason_to_proto(error.why), message=error.message, stage_index=stage_index, metadata=error.facts
    )
    return ring_pb2.Frame(session=session, failure=failure)


def failure_error(failure: ring_pb2.Failure) -> SwarmError:
    """What a stage failed a session with."""
    return error_from_proto(failure.reason, f"stage {failure.stage_index}: {failure.message}", failure.metadata)


def elapsed_us(started_s: float, stopped_s: float) -> int:
    """Microseconds between two readings of one clock, as a trace can hold them."""
    return min(max(0, int((stopped_s - started_s) * 1e6)), 2**32 - 1)
