"""What a load asks for, and what a plan of one says. Plain facts."""

from dataclasses import dataclass

from swarm_leader.domain.records import StageRecord, Transport


@dataclass(frozen=True)
class PlanRequest:
    """What is asked for. num_stages 0: as few as fit. fellow_ids: ids in ring order; empty is the planner's choice."""

    num_stages: int = 0
    fellow_ids: tuple[str, ...] = ()
    transport: Transport = Transport.AUTO
    context_tokens: int = 0


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

    notes: what was chosen for lack of a capability, in words. batch_max: sessions of one decode step, 0 is no cap.
    """

    stages: tuple[StageRecord, ...]
    transport: Transport
    dtype: str
    context_tokens: int
    kv_tokens: int
    in_flight_max: int
    notes: tuple[str, ...]
    batch_max: int = 0
