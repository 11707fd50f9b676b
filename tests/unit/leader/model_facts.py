"""Made-up models and fellows for tests of the leader's decisions. For tests only."""

from dataclasses import replace

from swarm_core.manifest import DTYPE_BYTES, Manifest, TensorEntry
from swarm_core.servable_parts import AdapterOf, TrainingSplit
from swarm_leader.domain.capabilities import Capabilities, FellowFacts, Serve, WireRange
from swarm_leader.domain.device_facts import CARD, DeviceFacts
from swarm_leader.domain.planning.wanted import AdapterWish

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


def make_linear_manifest(
    layer_count: int = 4,
    outputs: int = 512,
    inputs: int = 512,
    dtype: str = "BF16",
    split: TrainingSplit | None = None,
    **changes: object,
) -> Manifest:
    """A model of which each layer is one linear layer and a norm."""
    plain = make_manifest(layer_count=layer_count, dtype=dtype, **changes)  # type: ignore[arg-type]
    tensors = {name: entry for name, entry in plain.tensors.items() if ".layers." not in name}
    for layer in range(layer_count):
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = make_tensor((outputs, inputs), dtype)
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = make_tensor((inputs,), dtype)
    return replace(plain, tensors=tensors, split=split)


def make_adapter(model_id: str, base: Manifest, rank: int = 8, is_alone: bool = False) -> AdapterWish:
    """An adapter of every linear layer of a model made above."""
    tensors = {}
    for name, entry in base.tensors.items():
        if name.endswith("_proj.weight"):
            place = name.removesuffix(".weight")
            tensors[f"{place}.lora_A.weight"] = make_tensor((rank, entry.shape[1]), "BF16")
            tensors[f"{place}.lora_B.weight"] = make_tensor((entry.shape[0], rank), "BF16")
    of = AdapterOf(base.model_id, rank, ("up_proj",), scale=2.0)
    return AdapterWish(replace(base, model_id=model_id, tensors=tensors, adapter=of), "a" * 64, is_alone)


def make_cards(name: str, *free_bytes: int | None, dtype: str = "F16", **changes: object) -> FellowFacts:
    """A fellow whose stage is spread over cards with this much free, the first with the index 1; 0 is its processor."""
    devices = tuple(DeviceFacts(index, CARD, free, dtype, 100e9) for index, free in enumerate(free_bytes, start=1))
    fellow = make_fellow(name, free_bytes[0], dtype, serve_devices=True, **changes)
    return replace(fellow, devices=devices)
