"""How this machine's stages can hold linear layers. Pure: what is installed and what the devices are, as told."""

from collections.abc import Collection, Sequence

from swarm_core.quantization import INT8, NF4

INT4_CAPABILITY_MIN = (8, 0)  # of a card: torchao's int4 kernels need Ampere
INT4_INSTRUCTIONS = frozenset({"avx2", "fma"})  # of a processor: without them torch multiplies int4 one by one


def methods_installed(has_bitsandbytes: bool) -> tuple[str, ...]:
    """Methods of `serve_quantized`; none without the library."""
    return (NF4, INT8) if has_bitsandbytes else ()


def runs_int4_fast(has_torchao: bool, card_capabilities: Sequence[str], processor_flags: Collection[str]) -> bool:
    """Whether `serve_int4_fast` holds: on every card there is ("8.6" each), or on the processor where there is none.

    A stage tries its kernels on its own device before it loads, and holds NF4 where this was too hopeful.
    """
    if not has_torchao:
        return False
    if card_capabilities:
        return all(_capability(said) >= INT4_CAPABILITY_MIN for said in card_capabilities)
    return set(processor_flags) >= INT4_INSTRUCTIONS


def _capability(said: str) -> tuple[int, int]:
    """(8, 6) of "8.6"; (0, 0) of a card that does not say."""
    major, _, minor = said.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
