"""What steps cost on this machine, measured after a load when asked for, into the log. Changes nothing else.

The figures are for people who choose stages, batch caps and piece sizes (SWARM_SERVE_STEP_COSTS).
"""

import statistics
import time
from collections.abc import Callable

import structlog
import torch
from silentswarm.core.v1 import stage_pb2
from swarm_core.slices import LayerRange

from swarm_stage.model.slice_model import SliceModel

log = structlog.get_logger()
BATCHES = (1, 2, 4, 8)
PIECES = (16, 64, 256)
HELD_TOKENS = 128  # what a session holds when its step is measured
REPEATS = 3


def log_step_costs(model: SliceModel, layers: LayerRange, spec: stage_pb2.StageSpec) -> None:
    """Measure decode steps of several batch sizes and prompt pieces of several lengths, and say so in one line each.

    Takes a second on a small model; a minute on one whose step takes one second.
    """
    room = spec.context_tokens or HELD_TOKENS + max(PIECES)
    for sessions in (count for count in BATCHES if count <= (spec.batch_max or max(BATCHES))):
        step_ms = measure_decode_ms(model, layers, sessions, min(HELD_TOKENS, room - REPEATS - 1))
        log.info("step cost", stage=spec.stage_index, sessions=sessions, step_ms=round(step_ms, 2))
    for tokens in (count for count in PIECES if count <= room):
        piece_ms = measure_piece_ms(model, layers, tokens)
        log.info("piece cost", stage=spec.stage_index, tokens=tokens, piece_ms=round(piece_ms, 2))


def measure_decode_ms(model: SliceModel, layers: LayerRange, sessions: int, held_tokens: int) -> float:
    """One step of this many sessions, each holding `held_tokens`; the median, in ms."""
    caches = [model.new_cache() for _ in range(sessions)]
    for cache in caches:
        model.run(_input(model, layers, 1, held_tokens), cache, 0)

    def step() -> None:
        hidden_BTD = _input(model, layers, sessions, 1)
        hidden_BTD = model.run_batch(hidden_BTD, caches, [cache.length for cache in caches])
        if layers.is_last:
            model.logits_batch(hidden_BTD)

    return _median_ms(step)


def measure_piece_ms(model: SliceModel, layers: LayerRange, tokens: int) -> float:
    """A prompt's first piece of this length; the median, in ms."""
    return _median_ms(lambda: model.run(_input(model, layers, 1, tokens), model.new_cache(), 0))


def _input(model: SliceModel, layers: LayerRange, sessions: int, positions: int) -> torch.Tensor:
    """What a stage is given, [sessions, positions, D]: embeddings of token 0, or zeros."""
    if layers.is_first:
        return model.embed([0] * (sessions * positions)).view(sessions, positions, -1)
    return torch.zeros(sessions, positions, model.hidden_size, dtype=model.dtype, device=model.device)


def _median_ms(step: Callable[[], object]) -> float:
    times_ms = []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times_ms.append((time.perf_counter() - started_s) * 1e3)
    return statistics.median(times_ms)
