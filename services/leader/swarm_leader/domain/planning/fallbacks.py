"""What a load falls back to when too few fellows can quantise as it asks: NF4, then full precision. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import NotEnoughMemory, SwarmError
from swarm_core.quantization import INT4_FAST, NF4, NONE

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.planning.refusals import who_lack
from swarm_leader.domain.planning.ring_needs import quantization_capability

_SAID = {NONE: "full precision"}


@dataclass(frozen=True)
class Fallback:
    """The next thing to try. note: what is done instead and for whose lack, for people."""

    quantization: str
    note: str


def fall_back(quantization: str, fellows: Sequence[FellowFacts]) -> Fallback | None:
    """What to try when a plan in this quantization was refused; None when another one would not help.

    fellows: those that could be in the ring. Only for lack of the capability: one that every fellow has and that does
    not fit takes less than what it would fall back to.
    """
    lacking = sorted(
        fellow.name
        for fellow in fellows
        if fellow.capabilities.serve and quantization not in fellow.capabilities.quantizations
    )
    if quantization == NONE or not lacking:
        return None
    following = NF4 if quantization == INT4_FAST else NONE
    who = f"{who_lack(lacking)} {quantization_capability(quantization)}"
    return Fallback(following, f"{who}: held in {say_form(following)} instead of {quantization}")


def say_form(quantization: str) -> str:
    """A quantization for people."""
    return _SAID.get(quantization, quantization)


def join_refusals(refused: Sequence[tuple[str, SwarmError]]) -> SwarmError:
    """One refusal for everything that was tried, by quantization, in order; each says why."""
    quantization, last = refused[-1]
    if len(refused) == 1 or not isinstance(last, NotEnoughMemory):
        return last
    words = " ".join(f"In {say_form(method)}: {_sentence(error.message)}" for method, error in refused)
    return NotEnoughMemory(words, **{**last.facts, "quantization": quantization})


def _sentence(words: str) -> str:
    return words if words.endswith(".") else f"{words}."
