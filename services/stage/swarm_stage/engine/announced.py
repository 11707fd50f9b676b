"""What the first frame of a session says of drawing, checked before it is kept. Draws nothing."""

from dataclasses import dataclass

from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import BadFrame

from swarm_stage.engine.reply import HELD_IDS_MAX
from swarm_stage.engine.sampling import Sampling, sampling_from_proto


@dataclass(frozen=True, slots=True)
class Announced:
    """What a session's first frame said. Of a middle stage it is empty: only the last one draws.

    sampling: how to draw. held_ids: what not to, before held_until_pos. prompt_ids: for a repetition penalty.
    drawn_ids: for any penalty, what was drawn before the session began.
    """

    sampling: Sampling | None = None
    held_ids: tuple[int, ...] = ()
    held_until_pos: int = 0
    prompt_ids: tuple[int, ...] = ()
    drawn_ids: tuple[int, ...] = ()


def read_announced(hidden: ring_pb2.Hidden, vocabulary_size: int, context_tokens: int) -> Announced:
    """What the first frame says of drawing. Raises BadFrame, BadRequest."""
    hold = hidden.hold
    if len(hold.ids) > HELD_IDS_MAX or any(token >= vocabulary_size for token in hold.ids):
        raise BadFrame(f"{len(hold.ids)} tokens to hold back; at most {HELD_IDS_MAX}, each below {vocabulary_size}")
    for ids in (hidden.prompt_ids, hidden.drawn_ids):
        if len(ids) > context_tokens or any(token >= vocabulary_size for token in ids):
            most = f"at most {context_tokens}, each below {vocabulary_size}"
            raise BadFrame(f"{len(ids)} tokens of a prompt or reply; {most}", tokens=len(ids))
    sampling = sampling_from_proto(hidden.sampling, vocabulary_size)
    prompt_ids = tuple(hidden.prompt_ids) if sampling.repetition_penalty != 1 else ()
    drawn_ids = tuple(hidden.drawn_ids) if sampling.counts_tokens else ()
    return Announced(sampling, tuple(hold.ids), hold.until_pos, prompt_ids, drawn_ids)
