"""Made-up models and fellows for tests of the leader's decisions. For tests only."""

from swarm_core.manifest import DTYPE_BYTES, Manifest, TensorEntry
from swarm_leader.domain.capabilities import Capabilities, FellowFacts, Serve, WireRange

MEGABYTE = 10**6
GIGABYTE = 10**9


def make_manifest(
    layer_count: int = 4,
    hidden_size: int = 64,
    vocabulary_size: int = 1000,
    tied: bool = True,
    dtype: str = "BF16",
    model_type: str = "llama",
    context_tokens_max: int = 2048,
    layer_elements: int = 0,
) -> Manifest:
    """A manifest whose layers hold `layer_elements` (12 hidden^2 when 0) weights each."""
    per_layer = layer_elements or 12 * hidden_size * hidden_size
    shapes = {"model.embed_tokens.weight": (vocabulary_size, hidden_size), "model.norm.weight": (hidden_size,)}
    if not tied:
        shapes["lm_head.weight"] = (vocabulary_size, hidden_size)
    for layer in range(layer_count):
        shapes[f"model.layers.{layer}.mlp.weight"] = (per_layer,)
    tensors = {name: make_tensor(shape, dtype) for name, shape in shapes.items()}
    return Manifest(
        model_id="org/tiny",
        model_type=model_type,
        layer_count=layer_count,
        hidden_size=hidden_size,
        vocabulary_size=vocabulary_size,
        kv_heads=2,
        head_dim=16,
        tied_embeddings=tied,
        context_tokens_max=context_tokens_max,
        tensors=tensors,
        files={},
    )


def make_tensor(shape: tuple[int, ...], dtype: str) -> TensorEntry:
    """A tensor of this shape; where it lies does not matter."""
    elements = 1
    for extent in shape:
        elements *= extent
    return TensorEntry("base/model.safetensors", 0, elements * DTYPE_BYTES[dtype], dtype, shape, "0" * 64)


def make_capabilities(**changes: object) -> Capabilities:
    """A fellow that can do everything a ring asks for, but for the changes."""
    able: dict[str, object] = {
        "wire": WireRange(1, 1),
        "ping": True,
        "serve": Serve(),
        "serve_one_stage": True,
        "stage_count_max": 16,
        "in_flight_max": 64,
        "direct_link": True,
        "serve_rewire": True,
        "serve_kv_budget": True,
        "serve_sampling": True,
    }
    return Capabilities(**{**able, **changes})


def make_fellow(name: str, free_bytes: int | None = 8 * GIGABYTE, dtype: str = "F32", **changes: object) -> FellowFacts:
    """A fellow whose id is its name with "id-" before it."""
    return FellowFacts(f"id-{name}", name, free_bytes, dtype, make_capabilities(**changes))
