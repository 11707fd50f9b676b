"""How a load says what it wants held, and how: the options that `model-load` and `swarm up` share. Sends nothing."""

from enum import StrEnum
from typing import Annotated

import typer
from silentswarm.core.v1 import weights_pb2


class QuantizationChoice(StrEnum):
    """How linear layers are held; the words of swarm_core.quantization."""

    NF4 = "nf4"
    INT8 = "int8"
    INT4_FAST = "int4-fast"
    NONE = "none"

    @property
    def proto(self) -> weights_pb2.Quantization:
        """The same choice on the wire."""
        return weights_pb2.Quantization(method=self.value)


class CodecChoice(StrEnum):
    """How hidden states are coded on links."""

    INT8 = "int8"
    INT4 = "int4"
    NONE = "none"


QuantizationOption = Annotated[
    QuantizationChoice | None,
    typer.Option(
        "--quantization",
        help="How linear layers are held; none: at full precision. The model's own default when absent.",
        show_default=False,
    ),
]
CodecOption = Annotated[
    CodecChoice | None,
    typer.Option(
        "--codec",
        help="How hidden states are coded between stages. As the model was trained, else not at all, when absent.",
        show_default=False,
    ),
]
AdapterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter", metavar="X", help="An adapter to hold beside the weights, by id; repeat; '*': all of it."
    ),
]
