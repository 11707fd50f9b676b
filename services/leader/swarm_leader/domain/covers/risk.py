"""How likely a stage's fellow is lost, from what is known of it. Pure."""

from dataclasses import dataclass

UNKNOWN = 0.5
_GRADES = {"A": 0.1, "B": 0.25, "C": 0.5, "D": 0.7, "F": 0.9}
FLAP_RISK = 0.1  # each connection lost lately
SHARED_RISK = 0.1  # each further stage that would go with it
RISE_MAX = 0.3  # by either


@dataclass(frozen=True)
class FellowHealth:
    """What telemetry knows of a machine. grade: A to F, "" is unknown. availability: 0 to 1. flaps: links lost lately.

    disk_free_bytes: of its model cache; None is unknown.
    """

    grade: str = ""
    availability: float | None = None
    flaps: int = 0
    disk_free_bytes: int | None = None


def risk_of(health: FellowHealth, stages_held: int) -> float:
    """0 to 1. stages_held: by this fellow, in all rings; more of them are lost at once."""
    known = []
    if health.grade in _GRADES:
        known.append(_GRADES[health.grade])
    if health.availability is not None:
        known.append(1.0 - min(max(health.availability, 0.0), 1.0))
    risk = max(known, default=UNKNOWN)
    risk += min(FLAP_RISK * max(health.flaps, 0), RISE_MAX)
    risk += min(SHARED_RISK * max(stages_held - 1, 0), RISE_MAX)
    return min(risk, 1.0)
