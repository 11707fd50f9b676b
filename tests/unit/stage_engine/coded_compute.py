"""The arithmetic model with hidden states as wide as a real one's, in numbers that survive every codec. No torch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from silentswarm.core.v1 import tensor_pb2
from swarm_stage.engine.steps import Outcome, Step, WireHidden
from swarm_wire.codecs import decode, encode

from tests.unit.stage_engine.arithmetic_compute import ArithmeticCompute

WIDTH = 576
_DIGITS = 8 ** np.arange(4)  # an id in four digits below 8


class CodedCompute(ArithmeticCompute):
    """hidden = [digits of the id, stages passed, 7, 0...]: the 7 makes the scale of int4 one, so nothing is rounded.

    codec: of both links; "" sends float32.
    """

    def __init__(self, is_first: bool, is_last: bool, codec: str = "", poison: int | None = None) -> None:
        super().__init__(is_first, is_last, poison)
        self._codec = codec

    def forward(self, steps: Sequence[Step]) -> list[Outcome]:
        narrow = [step if step.hidden is None else replace(step, hidden=self._narrow(step.hidden)) for step in steps]
        return [
            outcome if outcome.hidden is None else replace(outcome, hidden=self._wide(outcome.hidden))
            for outcome in super().forward(narrow)
        ]

    def _wide(self, hidden: WireHidden) -> WireHidden:
        assert isinstance(hidden, tensor_pb2.Tensor)
        ids_T, stages_T = np.frombuffer(hidden.data, dtype="<f4").reshape(-1, 2).T
        wide_TD = np.zeros((len(ids_T), WIDTH), dtype=np.float32)
        wide_TD[:, :4] = ids_T.astype(np.int64)[:, None] // _DIGITS % 8
        wide_TD[:, 4], wide_TD[:, 5] = stages_T, 7
        if self._codec:
            return encode(self._codec, wide_TD)
        return tensor_pb2.Tensor(dtype="F32", shape=wide_TD.shape, data=wide_TD.tobytes())

    def _narrow(self, hidden: WireHidden) -> tensor_pb2.Tensor:
        if isinstance(hidden, tensor_pb2.CodedTensor):
            wide_TD = np.rint(decode(hidden))  # int8 is off by less than half
        else:
            wide_TD = np.frombuffer(hidden.data, dtype="<f4").reshape(hidden.shape)
        narrow_T2 = np.stack([wide_TD[:, :4] @ _DIGITS, wide_TD[:, 4]], axis=1).astype("<f4")
        return tensor_pb2.Tensor(dtype="F32", shape=narrow_T2.shape, data=narrow_T2.tobytes())
