"""What a whole model's weights take in memory, by how linear layers are held. Pure; knows no fellow."""

from swarm_core.manifest import DTYPE_BYTES, Manifest
from swarm_core.quantization import METHODS, held_bytes, is_quantized_weight


def price_weights(manifest: Manifest) -> dict[str, int]:
    """Method -> bytes of all weights; what a method leaves alone is as stored. Empty for an adapter, which is small."""
    if manifest.adapter is not None:
        return {}
    return {method: _weight_bytes(manifest, method) for method in METHODS}


def _weight_bytes(manifest: Manifest, method: str) -> int:
    return sum(
        held_bytes(method, entry.shape, DTYPE_BYTES[entry.dtype])
        if is_quantized_weight(name) and len(entry.shape) == 2
        else entry.size_bytes
        for name, entry in manifest.tensors.items()
    )
