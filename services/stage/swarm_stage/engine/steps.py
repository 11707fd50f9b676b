"""What the engine asks of a model: a batch of steps in, an outcome for each out. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from silentswarm.core.v1 import generation_pb2, tensor_pb2
from swarm_core.errors import SwarmError


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive positions of one session, from `pos`.

    ids on stage 0, hidden on every other. sampling: on the stage that holds the head. sample: the token after the last
    position is wanted. held_ids: tokens that must not be drawn now.
    """

    session: int
    pos: int
    ids: Sequence[int] | None = None
    hidden: tensor_pb2.Tensor | None = None
    sampling: generation_pb2.Sampling | None = None
    sample: bool = True
    held_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step: hidden states for the next stage, or (last stage) a token if one was wanted, or an error.

    compute_us: of steps run together the whole of it, which each waits for; drawing is sample_us, likewise.
    """

    compute_us: int
    hidden: tensor_pb2.Tensor | None = None
    token: int | None = None
    error: SwarmError | None = None
    sample_us: int = 0


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

    def open(self, session: int, reserved_tokens: int) -> None:
        """Begin a session with an empty cache that will hold at most reserved_tokens; 0 is not known.

        Raises StageFailed when there is no memory for it.
        """

    def close(self, session: int) -> None:
        """Free a session's cache; unknown ones are ignored."""

    def held_tokens(self) -> int:
        """Positions held for all sessions."""

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        """Run the steps, one outcome each, in order; at most one step a session.

        A session that holds more than `pos` is cropped first; one that holds less gets BadFrame. An error is its own
        session's alone.
        """
