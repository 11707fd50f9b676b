"""What a stage counts. Written by the engine thread alone, read by anyone."""

from dataclasses import dataclass


@dataclass
class Counters:
    """Totals since load, and the live figures of now. Those of stage 0 stay 0 on every other stage."""

    requests: int = 0
    positions: int = 0
    frames_refused: int = 0
    busy_s: float = 0.0
    sessions: int = 0
    kv_tokens_used: int = 0
    kv_tokens_max: int = 0  # what the ring admits by, once it is wired
    last_busy_s: float = 0.0
    sessions_kept: int = 0  # of older epochs
    tape_bytes: int = 0
    positions_rebuilt: int = 0
    # Stage 0:
    resumed_kept: int = 0
    resumed_anew: int = 0
    kv_tokens_reserved: int = 0
    waiting: int = 0
    too_long: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    masks: int = 0  # asked of constraints, one a token
    masks_s: float = 0.0  # what they and taking in what was drawn took
    tokens_per_s: float | None = None
    first_token_s: float | None = None
