"""A stage process whose model sleeps instead of computing; the engine, its links and its servicer are the real ones.

    python -m tests.bench.sleeping_stage --socket PATH --base-ms 4 --row-ms 1 --token-ms 0.2

A batch of decode steps takes base + rows * row, a prompt piece base + positions * token. Schedule and protocol can be
measured so on fewer cores than there are stages.
"""

import argparse
import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

from silentswarm.core.v1 import tensor_pb2
from silentswarm.stage.v1 import stage_pb2 as stage_rpc
from swarm_core.errors import BadFrame
from swarm_core.logs import configure_logs
from swarm_core.quantization import NONE
from swarm_core.slices import LayerRange
from swarm_stage.engine.steps import Outcome, Step
from swarm_stage.serve.listener import serve
from swarm_stage.serve.parent import die_with_parent

from tests.bench import variant_stage

VOCABULARY = 49_152
PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class StepCost:
    """What a step takes, in seconds."""

    base_s: float
    row_s: float
    token_s: float

    def of(self, steps: Sequence[Step]) -> float:
        """Seconds of one forward: decode rows together, prompt pieces one by one."""
        sizes = [positions_of(step) for step in steps]
        rows = sum(1 for size in sizes if size == 1)
        pieces = [size for size in sizes if size > 1]
        decode_s = self.base_s + rows * self.row_s if rows else 0.0
        return decode_s + sum(self.base_s + size * self.token_s for size in pieces)


def positions_of(step: Step) -> int:
    """How many positions a step covers."""
    if step.ids is not None:
        return len(step.ids)
    return step.hidden.shape[0] if step.hidden is not None else 0


class SleepingCompute:
    """Keeps lengths where a slice keeps keys and values, and sleeps where it multiplies."""

    vocabulary_size = VOCABULARY
    batches = True

    def __init__(self, cost: StepCost, hidden_size: int, is_last: bool) -> None:
        self._cost = cost
        self._hidden_size = hidden_size
        self._is_last = is_last
        self._lengths: dict[int, int] = {}

    def open(self, session: int, reserved_tokens: int = 0, adapter: str = "") -> None:
        self._lengths[session] = 0

    def close(self, session: int) -> None:
        self._lengths.pop(session, None)

    def detach(self, session: int) -> None:
        self._lengths.pop(session, None)

    def attach(self, session: int, held: object, length: int) -> bool:
        return False

    def held_tokens(self) -> int:
        return sum(self._lengths.values())

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        started_ns = time.perf_counter_ns()
        due_s = time.monotonic() + self._cost.of(steps)
        outcomes = [self._outcome(step) for step in steps]
        time.sleep(max(0.0, due_s - time.monotonic()))
        compute_us = (time.perf_counter_ns() - started_ns) // 1000
        return [Outcome(compute_us, hidden, token, error) for hidden, token, error in outcomes]

    def _outcome(self, step: Step) -> tuple[tensor_pb2.Tensor | None, int | None, BadFrame | None]:
        held, positions = self._lengths.get(step.session, -1), positions_of(step)
        if held < step.pos:
            return None, None, BadFrame(f"session {step.session} holds {held} positions; a frame starts at {step.pos}")
        self._lengths[step.session] = step.pos + positions
        if self._is_last:
            return None, (step.pos % 1000 + 100) if step.sample else None, None
        data = bytes(positions * self._hidden_size * 4)
        return tensor_pb2.Tensor(dtype="F32", shape=[positions, self._hidden_size], data=data), None, None


@dataclass(frozen=True)
class SleepingModel:
    """What the runner asks of a slice."""

    hidden_size: int
    vocabulary_size: int = VOCABULARY
    weight_bytes: int = 0
    kv_bytes_per_token: int = 1
    context_tokens_max: int = 2**20
    quantization: str = NONE
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuiltSleep:
    """As a built slice."""

    model: SleepingModel
    layers: LayerRange
    kv_tokens_measured: int = 2**20


def main() -> None:
    """Parse, serve, end with the parent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--base-ms", type=float, default=0.0)
    parser.add_argument("--row-ms", type=float, default=0.0)
    parser.add_argument("--token-ms", type=float, default=0.0)
    parser.add_argument("--hidden-size", type=int, default=576)
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    cost = StepCost(options.base_ms / 1e3, options.row_ms / 1e3, options.token_ms / 1e3)

    def build(request: stage_rpc.LoadRequest, on_progress: object) -> tuple[SleepingCompute, BuiltSleep]:
        spec = request.spec
        layers = LayerRange(spec.layer_start, spec.layer_stop, options.layers)
        compute = SleepingCompute(cost, options.hidden_size, layers.is_last)
        return compute, BuiltSleep(SleepingModel(options.hidden_size), layers)

    configure_logs("stage", "WARNING", False)
    die_with_parent()
    # Sleeps end within microseconds of their time, not within the 50 the kernel allows itself.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    variant_stage.run(lambda: serve(options.socket, build))


if __name__ == "__main__":
    main()
