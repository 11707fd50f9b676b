"""What the engine asks of a model: a batch of steps in, an outcome for each out. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from silentswarm.core.v1 import tensor_pb2
from swarm_core.errors import SwarmError

from swarm_stage.engine.reply import Likelihood
from swarm_stage.engine.sampling import Sampling

# Hidden states as they cross a link: as they are, or as codes where the link is coded.
WireHidden = tensor_pb2.Tensor | tensor_pb2.CodedTensor


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive positions of one session, from `pos`.

    ids on stage 0, hidden on every other. sampling, prompt_ids: on the stage that holds the head, the same in every
    step of a session; prompt_ids are for a repetition penalty alone. drawn_ids: likewise, what stands right before the
    first token that this session draws, for any penalty. sample: the token after the last position is
    wanted. held_ids: tokens that must not be drawn now, unless nothing else is allowed. allowed_V: the only ones that
    may, one bool an id; None is any.
    """

    session: int
    pos: int
    ids: Sequence[int] | None = None
    hidden: WireHidden | None = None
    sampling: Sampling | None = None
    sample: bool = True
    held_ids: Sequence[int] = ()
    allowed_V: np.ndarray | None = field(default=None, compare=False)
    prompt_ids: Sequence[int] = ()
    drawn_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step: hidden states for the next stage, or (last stage) a token if one was wanted, or an error.

    likelihood: of the token, when the session's sampling asks for it.
    compute_us: of steps run together the whole of it, which each waits for; drawing is sample_us, likewise.
    """

    compute_us: int
    hidden: WireHidden | None = None
    token: int | None = None
    error: SwarmError | None = None
    sample_us: int = 0
    likelihood: Likelihood | None = None


class Detached(Protocol):
    """A session's cache that no session uses now."""

    @property
    def length(self) -> int:
        """Positions held."""
        ...


class Compute(Protocol):
    """A slice of a model with the KV of its sessions. Only the engine thread calls it."""

    @property
    def vocabulary_size(self) -> int:
        """Ids are below this."""

    @property
    def batches(self) -> bool:
        """Steps of several sessions may come in one call. False for a model whose state is not one row per position:
        it is run one session at a time.
        """

    def open(self, session: int, reserved_tokens: int, adapter: str = "") -> None:
        """Begin a session with an empty cache that will hold at most reserved_tokens; 0 is not known.

        adapter: the one every step of it runs with; "" is the base.
        Raises BadRequest for an adapter that is not held, StageFailed when there is no memory for the cache.
        """

    def close(self, session: int) -> None:
        """Free a session's cache; unknown ones are ignored."""

    def detach(self, session: int) -> Detached | None:
        """End a session but keep its cache; None when it is not known. What is not attached again is freed."""

    def attach(self, session: int, held: Any, length: int) -> bool:
        """Begin a session with a detached cache, cropped to `length`; what was drawn is told anew with its steps.

        False, and nothing begun, when the cache holds less or cannot go back so far.
        """

    def held_tokens(self) -> int:
        """Positions held for all sessions."""

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        """Run the steps, one outcome each, in order; at most one step a session.

        A session that holds more than `pos` is cropped first, and has not drawn what stood behind; one that holds less
        gets BadFrame. An error is its own session's alone.
        """
