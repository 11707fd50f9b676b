"""What a stage takes in memory: weights, KV and working buffers, in bytes. Arithmetic only; places nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from swarm_core.manifest import DTYPE_BYTES, Manifest, TensorEntry
from swarm_core.quantization import INT4_FAST, INT8, NF4, NONE, held_bytes, is_quantized_weight
from swarm_core.slices import EMBEDDING, FINAL_NORM, HEAD, LayerRange, layer_of, slice_tensors

_FLOATS = {"F64", "F32", "F16", "BF16"}
# Buffers that come and go in one forward pass beyond those counted below; a stage keeps the same room.
PASSING_BYTES = 300 * 2**20
PREFILL_CHUNK_TOKENS = 256  # SWARM_SERVE_PREFILL_CHUNK's default, for a first stage that does not say its own
# Hidden-sized buffers alive at once in one layer: residual, norm, q, k, v, attention output, and the MLP's three
# at about four times the hidden size each.
HIDDEN_BUFFERS = 18
# What a step of one token takes a processor in a linear layer, against reading the same layer in float32: layers of
# SmolLM2 (docs/measurements/2026-11-weights.md, "Prediction"; int4-fast: 2026-11-quantised.md, steps less the head).
PROCESSOR_SLOWDOWN = {NF4: 3.1, INT8: 2.1, INT4_FAST: 0.9}


@dataclass(frozen=True)
class WeightForm:
    """How weights are held. dtype: computed in. quantization: of linear layers of decoder layers.

    storage_dtype: what matrices that are not quantised are held in, embeddings and head as well; "" is dtype.
    """

    dtype: str
    quantization: str = NONE
    storage_dtype: str = ""


@dataclass(frozen=True)
class AdapterCost:
    """An adapter that is held beside the weights. is_always: every session runs with it."""

    manifest: Manifest
    is_always: bool


@dataclass(frozen=True)
class ModelCost:
    """What the parts of one model take in one form of its weights.

    layer_prefix_bytes: weights of all layers before each layer, one more entry than layers.
    adapter_prefix_bytes: likewise of adapters that only some sessions choose: held, and not read for every token.
    processor_prefix_bytes: likewise, in bytes of float32 that take a processor as long as multiplying the layers does.
    layer_prefix_elements: likewise, elements of matrices: each takes two operations a position.
    kv_layer_bytes: keys and values of one position in one layer.
    prefill_chunk_tokens: the longest run of positions computed at once, tokens.
    """

    layer_prefix_bytes: tuple[int, ...]
    adapter_prefix_bytes: tuple[int, ...]
    processor_prefix_bytes: tuple[int, ...]
    embedding_bytes: int
    norm_bytes: int
    head_bytes: int
    tied_embeddings: bool
    kv_layer_bytes: int
    hidden_bytes: int
    query_heads: int
    vocabulary_size: int
    prefill_chunk_tokens: int = PREFILL_CHUNK_TOKENS
    layer_prefix_elements: tuple[int, ...] = ()

    @property
    def layer_count(self) -> int:
        """Layers of the model."""
        return len(self.layer_prefix_bytes) - 1

    def weight_bytes(self, layers: LayerRange) -> int:
        """Weights of a stage, or of the part of one that is on one device, adapters included.

        Tied embeddings are the last one's head too, held once by one that is both.
        """
        held = _between(self.layer_prefix_bytes, layers) + _between(self.adapter_prefix_bytes, layers)
        if layers.is_first:
            held += self.embedding_bytes
        if layers.is_last:
            held += self.norm_bytes
            if not (self.tied_embeddings and layers.is_first):
                held += self.head_bytes
        return held

    def read_bytes(self, layers: LayerRange, on_processor: bool = False) -> int:
        """Weights a stage reads for one token: all but the embeddings, of which it reads a row.

        on_processor: what it could read meanwhile; unpacking weights of few bits takes longer there than reading them.
        """
        read = _between(self.processor_prefix_bytes if on_processor else self.layer_prefix_bytes, layers)
        return read + (self.norm_bytes + self.head_bytes if layers.is_last else 0)

    def operations(self, layers: LayerRange) -> int:
        """Operations of one position of a prompt; the head computes one position of a prompt alone and is left out."""
        return 2 * _between(self.layer_prefix_elements, layers) if self.layer_prefix_elements else 0

    def kv_bytes(self, layers: LayerRange, kv_tokens: int) -> int:
        """Keys and values of a stage for this many positions of all sessions together."""
        return (layers.layer_stop - layers.layer_start) * self.kv_layer_bytes * kv_tokens

    def working_bytes(self, is_last: bool, context_tokens: int, in_flight: int) -> int:
        """Buffers of a forward pass: one prompt piece through a layer, its attention scores, and the logits.

        A decode step of every session in flight takes no more: one row each, and all its scores together are those of
        the KV positions held, far fewer than a piece times a context. A pass is one or the other, never both.
        """
        piece = min(self.prefill_chunk_tokens, context_tokens)
        activations = max(piece, in_flight) * self.hidden_bytes * HIDDEN_BUFFERS
        scores = piece * context_tokens * self.query_heads * DTYPE_BYTES["F32"]
        logits = in_flight * self.vocabulary_size * DTYPE_BYTES["F32"] if is_last else 0
        return PASSING_BYTES + activations + scores + logits


def cost_of(
    manifest: Manifest,
    form: WeightForm,
    adapters: Sequence[AdapterCost] = (),
    prefill_chunk_tokens: int = 0,
) -> ModelCost:
    """Price a model. prefill_chunk_tokens: of the first stage's fellow; 0 does not say.

    Raises ServableCorrupt when a tensor that must exist is missing.
    """
    slice_tensors(manifest, LayerRange(0, manifest.layer_count, manifest.layer_count))
    per_layer, slower, elements = ([0] * manifest.layer_count for _ in range(3))
    for tensor, entry in manifest.tensors.items():
        layer = layer_of(tensor)
        if layer is not None and layer < manifest.layer_count:
            held = _held_bytes(tensor, entry, form)
            per_layer[layer] += held
            slower[layer] += _unpacked_bytes(tensor, entry, form) - held
            elements[layer] += entry.element_count if len(entry.shape) > 1 else 0
    chosen = [0] * manifest.layer_count
    for adapter in adapters:
        _add_adapter(per_layer if adapter.is_always else chosen, adapter.manifest)

    def outside(tensor: str) -> int:
        entry = manifest.tensors.get(tensor)
        return _held_bytes(tensor, entry, form) if entry else 0

    return ModelCost(
        layer_prefix_bytes=tuple(accumulate(per_layer, initial=0)),
        adapter_prefix_bytes=tuple(accumulate(chosen, initial=0)),
        processor_prefix_bytes=tuple(accumulate(map(sum, zip(per_layer, slower, strict=True)), initial=0)),
        embedding_bytes=outside(EMBEDDING),
        norm_bytes=outside(FINAL_NORM),
        head_bytes=outside(EMBEDDING if manifest.tied_embeddings else HEAD),
        tied_embeddings=manifest.tied_embeddings,
        kv_layer_bytes=2 * manifest.kv_heads * manifest.head_dim * DTYPE_BYTES[form.dtype],
        hidden_bytes=manifest.hidden_size * DTYPE_BYTES[form.dtype],
        query_heads=query_heads(manifest),
        vocabulary_size=manifest.vocabulary_size,
        prefill_chunk_tokens=prefill_chunk_tokens or PREFILL_CHUNK_TOKENS,
        layer_prefix_elements=tuple(accumulate(elements, initial=0)),
    )


def query_heads(manifest: Manifest) -> int:
    """Attention heads of a layer: what the import noted, else as many as fill the hidden size."""
    noted = manifest.extra.get("attention_heads")
    if isinstance(noted, int) and noted > 0:
        return noted
    return max(1, manifest.hidden_size // max(1, manifest.head_dim), manifest.kv_heads)


def stored_dtype(manifest: Manifest) -> str:
    """The floating type most of the weights are stored in; F32 for a model without one."""
    stored: Counter[str] = Counter()
    for entry in manifest.tensors.values():
        if entry.dtype in _FLOATS:
            stored[entry.dtype] += entry.element_count
    return max(sorted(stored), key=lambda dtype: stored[dtype], default="F32")


def _between(prefix: Sequence[int], layers: LayerRange) -> int:
    return prefix[layers.layer_stop] - prefix[layers.layer_start]


def _held_bytes(tensor: str, entry: TensorEntry, form: WeightForm) -> int:
    """Bytes of a tensor once loaded: floats are cast or quantised, whole numbers stay as they are."""
    if entry.dtype not in _FLOATS:
        return entry.element_count * DTYPE_BYTES[entry.dtype]
    is_matrix = len(entry.shape) == 2 and tensor.endswith(".weight")
    full_bytes = DTYPE_BYTES[form.storage_dtype or form.dtype if is_matrix else form.dtype]
    if is_matrix and is_quantized_weight(tensor):
        return held_bytes(form.quantization, entry.shape, full_bytes)
    return entry.element_count * full_bytes


def _unpacked_bytes(tensor: str, entry: TensorEntry, form: WeightForm) -> int:
    """Bytes of float32 that take a processor as long as this tensor does in a step of one token."""
    if is_quantized_weight(tensor) and form.quantization in PROCESSOR_SLOWDOWN:
        return int(entry.element_count * DTYPE_BYTES["F32"] * PROCESSOR_SLOWDOWN[form.quantization])
    return _held_bytes(tensor, entry, form)


def _add_adapter(per_layer: list[int], adapter: Manifest) -> None:
    """An adapter is held in float32, whatever it is stored in."""
    for tensor, entry in adapter.tensors.items():
        layer = layer_of(tensor)
        if layer is not None and layer < len(per_layer):
            per_layer[layer] += entry.element_count * DTYPE_BYTES["F32"]
