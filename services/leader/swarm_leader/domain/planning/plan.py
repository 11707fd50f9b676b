"""What a load asks for, and what a plan of one says. Plain facts."""

from dataclasses import dataclass

from swarm_core.quantization import NONE

from swarm_leader.domain.holding import AdapterRef
from swarm_leader.domain.records import StageRecord, Transport

ALL_ADAPTERS = "*"
NO_CODEC = "none"
PROMPT_TOKENS = 512  # of the prompt whose first token is predicted: some turns of a chat


@dataclass(frozen=True)
class PlanRequest:
    """What is asked for.

    num_stages 0: as many as the model was trained with, else as few as fit, or what is faster. fellow_ids: ids in ring
    order; empty is the planner's choice. quantization: of swarm_core.quantization.METHODS; "" is the model's default.
    adapters: their ids, held beside the weights; ALL_ADAPTERS is every one of the model. codec: of links, NO_CODEC or
    one of CODECS; "" is as training did.
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
class LeftOut:
    """A fellow that a plan does without, because with it the ring would be slower. reason: in words and numbers."""

    fellow_id: str
    name: str
    reason: str


@dataclass(frozen=True)
class Forecast:
    """What is predicted of a plan beyond its speed.

    fellow_ids: of the ring it is about, in order: a stage that moved since is another ring's. link_ms: the way of one
    token from each stage to the next; empty for one stage. first_token_ms: of a prompt of PROMPT_TOKENS; None is
    unknown.
    """

    fellow_ids: tuple[str, ...] = ()
    link_ms: tuple[float, ...] = ()
    first_token_ms: float | None = None
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A placement that fits, not yet recorded.

    notes: what was chosen for lack of a capability or for speed, in words. The others are those of PlacementRecord,
    but for the forecast.
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
    forecast: Forecast = Forecast()
