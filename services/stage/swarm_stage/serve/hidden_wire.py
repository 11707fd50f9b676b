"""Hidden states of one stage from the wire and back, coded where its links are. Engine thread only."""

from collections.abc import Sequence

import numpy as np
import torch
from silentswarm.core.v1 import tensor_pb2
from swarm_core.errors import StageFailed
from swarm_wire import codecs

from swarm_stage.engine.steps import WireHidden

_TORCH_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class HiddenWire:
    """dtype: what the stage computes in. codec_in, codec_out: of its links; "" sends the elements as they are.

    B sessions, T positions, D hidden size. Headers were checked on arrival.
    """

    def __init__(self, dtype: str, device: str, codec_in: str = "", codec_out: str = "") -> None:
        self._dtype = dtype
        self._device = torch.device(device)
        self._codec_in = codec_in
        self._codec_out = codec_out

    def read(self, hidden: WireHidden) -> torch.Tensor:
        """hidden_BTD of one session."""
        return self.read_rows([hidden]).view(1, *hidden.shape)

    def read_rows(self, hiddens: Sequence[WireHidden]) -> torch.Tensor:
        """hidden_ND of several sessions, one below the other."""
        if self._codec_in:
            decoded_ND = torch.from_numpy(codecs.decode_rows(hiddens))
            return decoded_ND.to(self._device, _TORCH_DTYPES[self._dtype])
        data = bytearray(b"".join(hidden.data for hidden in hiddens))
        elements = torch.frombuffer(data, dtype=_TORCH_DTYPES[self._dtype]).to(self._device)
        return elements.view(-1, hiddens[0].shape[1])

    def write(self, hidden_BTD: torch.Tensor) -> WireHidden:
        """One session's positions. Raises StageFailed when a coded one is not finite."""
        if self._codec_out:
            return codecs.encode(self._codec_out, _float32(hidden_BTD[0]))
        hidden_TD = hidden_BTD[0].contiguous().cpu()
        data = hidden_TD.view(torch.uint8).numpy().tobytes()
        return tensor_pb2.Tensor(dtype=self._dtype, shape=list(hidden_TD.shape), data=data)

    def write_rows(self, hidden_B1D: torch.Tensor) -> Sequence[WireHidden | StageFailed]:
        """One tensor a session, or why its row cannot be sent; they leave the device together."""
        if self._codec_out:
            return codecs.encode_rows(self._codec_out, _float32(hidden_B1D[:, 0]))
        rows = hidden_B1D[:, 0].contiguous().cpu().view(torch.uint8).numpy()
        shape = [1, hidden_B1D.shape[2]]
        return [tensor_pb2.Tensor(dtype=self._dtype, shape=shape, data=row.tobytes()) for row in rows]


def _float32(hidden_ND: torch.Tensor) -> np.ndarray:
    return hidden_ND.cpu().float().numpy()
