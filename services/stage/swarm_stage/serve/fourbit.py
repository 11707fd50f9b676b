"""Times the 4-bit products of a loaded slice, on each of its devices, and lets them go the fastest way found.

What is decided from the times is model/fourbit/path.py's.
"""

import time
from collections.abc import Callable, Sequence

import structlog
import torch
from swarm_core.quantization import NF4

from swarm_stage.engine.budget import WORKING_BYTES
from swarm_stage.model.fourbit.float32 import has_piece_room, is_float32_measured
from swarm_stage.model.fourbit.path import FourbitPath, PathedWeight, choose_path
from swarm_stage.model.fourbit.rows import ROWS_MAX, asked_row_splits
from swarm_stage.model.holding import Holding
from swarm_stage.model.quantized.quantized_weight import QuantizedWeight
from swarm_stage.model.slice_model import SliceModel
from swarm_stage.serve.rooms import free_bytes, memory_of

log = structlog.get_logger()
# Most a load waits for it on each device, beside the one call that runs when the time is up. A GTX 1660 SUPER with
# Qwen3-14B in float16, the slowest one known, takes about as long; others take a tenth of it.
BUDGET_S = 2.0
POINT_S = 0.02  # a row count is timed again while it has taken less than this, and at most so many times:
REPEATS_MAX = 5
PIECE_TOKENS = 256  # a prompt piece where prompts are sent whole
FEW_ROWS = tuple(range(1, ROWS_MAX + 1))

Times = dict[int, float]
Now = Callable[[], float]
Multiply = Callable[[QuantizedWeight, torch.Tensor], torch.Tensor]


def choose_fourbit_paths(model: SliceModel, holding: Holding, stage_index: int, piece_tokens: int) -> dict[str, int]:
    """Measure, choose, and say so in one log line a device. Does nothing for weights that are not in NF4.

    Gives the bytes to keep free on a device for passing buffers, where that is more than usual: a prompt piece computed
    in float32 has one weight in float32 beside it, and a stage runs one forward at a time.
    Raises BadRequest for settings that are none.
    """
    asked, by_float32 = asked_row_splits(holding.fourbit_rows), is_float32_measured(holding.fourbit_float32)
    by_float32 = by_float32 and model.dtype is not torch.float32
    own_ms: Times
    float32_ms: Times
    working_bytes: dict[str, int] = {}
    if model.quantization != NF4 or (asked is not None and not asked.counts and not by_float32):
        return working_bytes
    for device in model.spread.devices:
        layers = [layer for layer in range(model.layer_count) if model.spread.device_of_layer(layer) == device]
        block = _weights_of(model, layers[0])
        buffer_bytes = max(weight.shape[0] * weight.shape[1] * 4 for weight in block)
        room_bytes = free_bytes(memory_of(device))
        own_ms, float32_ms = {}, {}
        if asked is None or by_float32:
            times = _Timing(block, model.dtype, device, max(piece_tokens or PIECE_TOKENS, ROWS_MAX))
            own_ms, float32_ms = times.measure(by_float32, has_piece_room(room_bytes, buffer_bytes))
        path = choose_path(own_ms, float32_ms, asked, room_bytes, buffer_bytes)
        _take(model, layers, path)
        if path.float32.has_pieces:
            working_bytes[memory_of(device)] = max(WORKING_BYTES, buffer_bytes)
        log.info(f"[stage{stage_index} 4bit-rows] {device} {describe(path, own_ms, float32_ms)}")
    return working_bytes


def describe(path: FourbitPath, own_ms: Times, float32_ms: Times) -> str:
    """What was measured and chosen, for people."""
    words = [f"one block ms {_curve(own_ms)}"] if own_ms else []
    if own_ms and not own_ms.keys() >= set(FEW_ROWS):
        words.append(f"not all of it within {BUDGET_S:g} s")
    words.append(str(path.splits))
    if float32_ms:
        words += [f"float32 {_curve(float32_ms)}", str(path.float32)]
    return "; ".join(words)


def measure_rows(run: Callable[[int], None], row_counts: Sequence[int], until_s: float, now: Now) -> Times:
    """Time by row count, in ms: the shortest of several, behind one that warms up. Left out is what is not begun by
    `until_s` on the clock.

    run: computes with so many rows, and waits for it.
    """
    times_ms: Times = {}
    for rows in row_counts:
        if now() >= until_s:
            break
        run(rows)
        taken_s: list[float] = []
        while len(taken_s) < REPEATS_MAX and sum(taken_s) < POINT_S and now() < until_s:
            started_s = now()
            run(rows)
            taken_s.append(now() - started_s)
        if taken_s:
            times_ms[rows] = min(taken_s) * 1e3
    return times_ms


class _Timing:
    """Times the products of one block on its device, within BUDGET_S from now."""

    def __init__(self, block: Sequence[QuantizedWeight], dtype: torch.dtype, device: str, piece_tokens: int) -> None:
        self._block, self._device, self._piece_tokens = block, device, piece_tokens
        self._until_s = time.perf_counter() + BUDGET_S
        widths = {weight.shape[1] for weight in block}
        self._inputs = {width: torch.ones(piece_tokens, width, dtype=dtype, device=device) for width in widths}

    def measure(self, by_float32: bool, has_room: bool) -> tuple[Times, Times]:
        """In what the stage computes in, and in float32 where that is wanted; few rows before the prompt piece.

        has_room: for a prompt piece in float32.
        """
        own_ms, float32_ms = self._times(FEW_ROWS, _as_it_is), {}
        if by_float32:
            float32_ms = self._times(FEW_ROWS, _by_float32)
            if self._piece_tokens > ROWS_MAX:
                own_ms |= self._times((self._piece_tokens,), _as_it_is)
                float32_ms |= self._times((self._piece_tokens,), _by_float32) if has_room else {}
        return own_ms, float32_ms

    def _times(self, row_counts: Sequence[int], multiply: Multiply) -> Times:
        @torch.inference_mode()
        def run(rows: int) -> None:
            for weight in self._block:
                multiply(weight, self._inputs[weight.shape[1]][:rows])
            if self._device.startswith("cuda"):
                torch.cuda.synchronize(self._device)

        return measure_rows(run, row_counts, self._until_s, time.perf_counter)


def _as_it_is(weight: QuantizedWeight, x_NI: torch.Tensor) -> torch.Tensor:
    return weight.product(x_NI)


def _by_float32(weight: QuantizedWeight, x_NI: torch.Tensor) -> torch.Tensor:
    return weight.product(x_NI.float()).to(x_NI.dtype)


def _weights_of(model: SliceModel, layer: int) -> list[QuantizedWeight]:
    found: list[QuantizedWeight] = []

    def keep(weight: QuantizedWeight) -> QuantizedWeight:
        found.append(weight)
        return weight

    model.replace_quantized(layer, keep)
    return found


def _take(model: SliceModel, layers: Sequence[int], path: FourbitPath) -> None:
    """Let these layers' products go this way; the default needs nothing between."""
    if path.splits.counts or path.float32.faster:
        for layer in layers:
            model.replace_quantized(layer, lambda weight: PathedWeight(weight, path))


def _curve(times_ms: Times) -> str:
    return " ".join(f"M={rows}:{taken_ms:.2f}" for rows, taken_ms in sorted(times_ms.items()))
