"""The timing of a reply that was made in several attempts, from that of the last one. Pure."""

from silentswarm.core.v1 import generation_pb2


def join_attempts(done: generation_pb2.GenerationEvent.Done, before_ms: float) -> None:
    """Make the timing of the last attempt that of the whole reply; its parts add up to its total as before.

    before_ms: from the first attempt to the last, on the leader's clock; 0 is unknown. What a decoded token took is
    known of the last attempt alone and stands for all of them. What is left of before_ms, which is the pause and the
    prompts that were computed for nothing, counts as waiting. The total is too long where the earlier tokens were
    faster than that.
    """
    timing = done.timing
    if timing.total_ms <= 0:
        return  # a stage that measures no total: unknown is not zero
    token_ms = sum(timing.stage_ms) + timing.link_ms + timing.sample_ms + timing.wait_ms
    decode_ms = max(timing.decode_ms, max(0, done.completion_tokens - 1) * token_ms)
    earlier_ms = decode_ms - timing.decode_ms
    waited_ms = max(0.0, before_ms - earlier_ms)
    timing.decode_ms = decode_ms
    timing.queue_ms += waited_ms
    timing.total_ms += earlier_ms + waited_ms
