"""Builds a stage's role from a load request: the slice, its warm-up, its measured budget. Engine thread only."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from silentswarm.core.v1 import stage_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import CONFIG_BYTES_MAX, CONFIG_NAME
from swarm_core.quantization import NONE
from swarm_core.slices import LayerRange

from swarm_stage.engine.budget import stage_kv_tokens
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import DeviceLayers, Holding
from swarm_stage.model.kv_cache import SessionCache
from swarm_stage.model.products.blas import limit_threads
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.serve.adapter_files import adapters_of
from swarm_stage.serve.boundaries import inner_codecs_of
from swarm_stage.serve.fourbit import choose_fourbit_paths
from swarm_stage.serve.measured_steps import log_step_costs
from swarm_stage.serve.rooms import rooms_of

log = structlog.get_logger()
OnProgress = Callable[[str, int, int], None]
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class BuiltSlice:
    """A slice that has computed once, with what it takes."""

    model: SliceModel
    layers: LayerRange
    kv_tokens_measured: int


def layers_of(spec: stage_pb2.StageSpec, config: dict) -> LayerRange:
    """The stage's place in the model. Raises ServableCorrupt when the config disagrees with the plan."""
    layer_count = config.get("num_hidden_layers")
    if not isinstance(layer_count, int):
        raise ServableCorrupt(f"config.json: num_hidden_layers is {str(layer_count)[:40]}, not a count")
    if not 0 <= spec.layer_start < spec.layer_stop <= layer_count:
        raise ServableCorrupt(f"layers {spec.layer_start}..{spec.layer_stop} of a model of {layer_count}")
    return LayerRange(spec.layer_start, spec.layer_stop, layer_count)


def build(request: stage_rpc.LoadRequest, on_progress: OnProgress) -> BuiltSlice:
    """Read the config, build the slice, run it once, measure what is left.

    Raises ServableCorrupt for files that do not fit each other, BadRequest for a spec that contradicts itself.
    """
    inner_codecs, adapters = inner_codecs_of(request.spec), adapters_of(request)
    torch.set_num_threads(max(1, request.threads) if request.threads else torch.get_num_threads())
    limit_threads(request.threads)
    config = _read_config(Path(request.model_dir))
    layers = layers_of(request.spec, config)
    holding = holding_of(request)
    model = build_slice(
        config,
        layers,
        dict(request.tensor_files),
        holding,
        lambda done, total: on_progress("weights", done, total),
        adapters,
        inner_codecs,
    )
    for note in model.notes:
        log.warning(note, stage=request.spec.stage_index)
    on_progress("warm-up", 0, 1)
    _warm_up(model, layers)
    on_progress("warm-up", 1, 1)
    working_bytes = choose_fourbit_paths(model, holding, request.spec.stage_index, request.prefill_chunk_tokens)
    if request.spec.measure_step_costs:
        log_step_costs(model, layers, request.spec)
    rooms = rooms_of(model, working_bytes)
    score_bytes = _score_bytes_per_token(request, config)
    kv_tokens, smallest = stage_kv_tokens(rooms, score_bytes, request.spec.context_tokens)
    spec = request.spec
    log.info("kv budget", stage=spec.stage_index, tokens=kv_tokens, planned=spec.kv_tokens, set_by=smallest.device)
    return BuiltSlice(model, layers, kv_tokens)


def holding_of(request: stage_rpc.LoadRequest) -> Holding:
    """How this load wants its weights held."""
    return Holding(
        dtype=request.spec.dtype,
        device=request.device or "cpu",
        device_layers=tuple(DeviceLayers(run.device, run.layer_start, run.layer_stop) for run in request.device_layers),
        storage_dtype=request.spec.storage_dtype,
        quantization=request.spec.quantization or NONE,
        attention=request.attention or "auto",
        fourbit_rows=request.fourbit_rows or "auto",
        fourbit_float32=request.fourbit_float32 or "auto",
        lora=request.lora or "lean",
    )


def _score_bytes_per_token(request: stage_rpc.LoadRequest, config: dict) -> int:
    """Attention scores of one prompt piece against one position, in bytes: a float for each head and row."""
    piece_tokens = request.prefill_chunk_tokens or request.spec.context_tokens
    return piece_tokens * int(config.get("num_attention_heads", 1)) * 4


def _read_config(model_dir: Path) -> dict:
    try:
        with (model_dir / CONFIG_NAME).open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ServableCorrupt(f"config.json of this model cannot be read: {error}") from error
    return read_json_object(raw, "config.json of this model", CONFIG_BYTES_MAX)


def _warm_up(model: SliceModel, layers: LayerRange) -> None:
    """A prompt and a step through the slice, so that the first reply pays for nothing that is done once.

    Raises ServableCorrupt when they give no numbers: a weight is NaN or infinite, and every reply would be nothing.
    """
    cache = model.new_cache()
    for positions, pos in ((WARM_UP_TOKENS, 0), (1, WARM_UP_TOKENS)):
        hidden_BTD = _run_once(model, layers, cache, positions, pos, "weights are")
        if layers.is_last:
            model.logits(hidden_BTD)
    for model_id, place in model.adapter_choices.items():
        cache = model.new_cache(0, place)
        _run_once(model, layers, cache, WARM_UP_TOKENS, 0, f"numbers of adapter {model_id} are")


def _run_once(
    model: SliceModel, layers: LayerRange, cache: SessionCache, positions: int, pos: int, blamed: str
) -> torch.Tensor:
    """What the layers make of the first token, or of nothing. Raises ServableCorrupt when that is no numbers."""
    if layers.is_first:
        hidden_BTD = model.embed([0] * positions)
    else:
        hidden_BTD = torch.zeros(1, positions, model.hidden_size, dtype=model.dtype, device=model.device)
    hidden_BTD = model.run(hidden_BTD, cache, pos)
    if not hidden_BTD.isfinite().all():
        raise ServableCorrupt(
            f"layers {layers.layer_start} to {layers.layer_stop - 1} compute no numbers: {blamed} NaN, "
            f"infinite, or too large for {str(model.dtype).removeprefix('torch.')}"
        )
    return hidden_BTD
