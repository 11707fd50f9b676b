"""How linear layers can be held, and what that takes. Pure: names and arithmetic; no torch."""

import math
from collections.abc import Sequence

from swarm_core.errors import BadRequest
from swarm_core.tensor_names import layer_of

NONE = "none"
NF4 = "nf4"
INT8 = "int8"
INT4_FAST = "int4-fast"
QUANTIZED = (NF4, INT8, INT4_FAST)
METHODS = (NONE, *QUANTIZED)
_BY_BITS = {4: NF4, 8: INT8, 16: NONE, 32: NONE}
_BACKENDS = {"bitsandbytes": (NF4, INT8), "torchao": (INT4_FAST,)}
BLOCK = 64  # elements of a weight that share a scale in NF4; bitsandbytes' default
INT4_GROUPS = (128, 64, 32)  # inputs that share a scale and a zero point in int4-fast: the most that divide them all
_SCALE_BYTES = 4
_LINEAR = "_proj.weight"  # every linear layer of every family served, and nothing else


def method_of(method: str, bits: int = 0, backend: str = "") -> str:
    """One of METHODS from the ways to say it; "" when nothing is said. Raises BadRequest for none, or several."""
    said = {method} if method else set()
    if method and method not in METHODS:
        raise BadRequest(
            f"quantization {method[:40]!r} does not exist; one of: {', '.join(METHODS)}", field="quantization"
        )
    if bits and bits not in _BY_BITS:
        raise BadRequest(f"{bits} bits are not served; 4, 8, 16 or 32", field="quantization.bits")
    if backend and backend not in _BACKENDS:
        raise BadRequest(
            f"backend {backend[:40]!r} does not exist; one of: {', '.join(_BACKENDS)}", field="quantization.backend"
        )
    if bits:
        said.add(INT4_FAST if bits == 4 and INT4_FAST in (method, *_BACKENDS.get(backend, ())) else _BY_BITS[bits])
    if backend == "torchao":
        said = {INT4_FAST if one == NF4 else one for one in said} or {INT4_FAST}
    if len(said) > 1 or (backend and not said <= set(_BACKENDS[backend])):
        words = ", ".join(part for part in (method, f"{bits} bits" if bits else "", backend) if part)
        raise BadRequest(f"quantization contradicts itself: {words}", field="quantization")
    return said.pop() if said else ""


def is_quantized_weight(tensor: str) -> bool:
    """Whether a quantised load quantises this tensor: the linear layers of a decoder layer, as transformers does."""
    return tensor.endswith(_LINEAR) and layer_of(tensor) is not None


def int4_group(inputs: int) -> int:
    """Inputs of a layer that share a scale in int4-fast; 0 when it cannot be held so."""
    return next((group for group in INT4_GROUPS if inputs % group == 0), 0)


def held_bytes(method: str, shape: Sequence[int], full_bytes: int) -> int:
    """Bytes of a linear weight [outputs, inputs] once held. full_bytes: of one element at full precision.

    Exactly what the formats take, scales included. What int4-fast cannot hold is NF4.
    Source: docs/decisions/0009-quantised-weights-are-priced-by-their-format.md
    """
    elements = math.prod(shape)
    group = int4_group(shape[-1])
    if method == NF4 or (method == INT4_FAST and not group):
        return -(-elements // 2) + -(-elements // BLOCK) * _SCALE_BYTES
    if method == INT8:
        return elements + shape[0] * _SCALE_BYTES
    if method == INT4_FAST:
        return -(-elements // 2) + elements // group * _SCALE_BYTES
    return elements * full_bytes
