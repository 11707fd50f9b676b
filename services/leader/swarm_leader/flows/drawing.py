"""Whether a ring draws as a request asks. Pure: facts in, a refusal out."""

from collections.abc import Iterable

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import CapabilityMissing

from swarm_leader.flows.registry import Fellow


def check_drawing(generation: generation_pb2.Generation, ring: Iterable[Fellow]) -> None:
    """Refuse what a fellow of the ring would quietly leave out. Raises CapabilityMissing, which names it.

    A fellow that is known and not connected has not said yet what it can do: it is not the one to blame.
    """
    asked = what_needs_sampling(generation)
    if not asked:
        return
    for fellow in ring:
        if fellow.link is not None and not fellow.capabilities.serve_sampling:
            raise CapabilityMissing(
                f"fellow {fellow.name} lacks serve_sampling: it cannot serve {asked}; upgrade it, or ask without",
                fellow=fellow.name,
                capability="serve_sampling",
                field=asked,
            )


def what_needs_sampling(generation: generation_pb2.Generation) -> str:
    """The first field that asks for more than temperature, top_p, top_k, min_p and seed; "" when none does.

    A field at its neutral value asks for nothing.
    """
    sampling, chat = generation.sampling, generation.chat
    if generation.HasField("constraint"):
        return "constraint"
    if chat.tools and chat.tool_choice.mode != generation_pb2.TOOL_MODE_NONE:
        return "tools"
    if sampling.frequency_penalty:
        return "frequency_penalty"
    if sampling.presence_penalty:
        return "presence_penalty"
    if sampling.HasField("repetition_penalty") and sampling.repetition_penalty != 1:
        return "repetition_penalty"
    if sampling.logit_bias:
        return "logit_bias"
    return "top_logprobs" if sampling.HasField("top_logprobs") else ""
