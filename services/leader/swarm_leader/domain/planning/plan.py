"""What a load asks for, and what a plan of one says. Plain facts."""

from dataclasses import dataclass

from swarm_core.quantization import NONE

from swarm_leader.domain.holding import AdapterRef
from swarm_leader.domain.records import StageRecord, Transport

ALL_ADAPTERS = "*"
NO_CODEC = "none"


@dataclass(frozen=True)
class PlanRequest:
    """What is asked for.

    num_stages 0: as many as the model was trained with, else as few as fit. fellow_ids: ids in ring order; empty is
    the planner's choice. quantization: of swarm_core.quantization.METHODS; "" is the model's default. adapters: their
    ids, held beside the weights; ALL_ADAPTERS is every one of the model. codec: of links, NO_CODEC or one of CODECS; ""
    is as training did.
    """

    num_stages: int = 0
    fellow_ids: tuple[str, ...] = ()
    transport: Transport = Transport.AUTO
    context_tokens: int = 0
    quantization: str = ""
    adapters: tuple[str, ...] = ()
    codec: str = ""


@dataclass(frozen=True)
class ServeDefaults:
    """The operator's choices. in_flight 0: four per stage. dtype "": what the fellows compute in.

    batch_max: most sessions of one decode step, 0 is no cap; None leaves it to the cards.
    """

    context_tokens: int = 4096
    typical_tokens: int = 1024
    in_flight: int = 0
    dtype: str = ""
    batch_max: int | None = None


@dataclass(frozen=True)
class Plan:
    """A placement that fits, not yet recorded.

    notes: what was chosen for lack of a capability, in words. The other fields are those of PlacementRecord.
    """

    stages: tuple[StageRecord, ...]
    transport: Transport
    dtype: str
    context_tokens: int
    kv_tokens: int
    in_flight_max: int
    notes: tuple[str, ...]
    batch_max: int = 0
    quantization: str = NONE
    quantization_asked: str = ""
    storage_dtype: str = ""
    weights_model_id: str = ""
    adapters: tuple[AdapterRef, ...] = ()
    codec: str = ""
    predicted_tokens_per_s: float | None = None
