"""How long to wait before the next try or heartbeat. Pure: the caller hands in the random draw."""

from collections.abc import Callable

REDIAL_MIN_S = 0.25
REDIAL_MAX_S = 5.0  # a third of a lease, so that an outage shorter than one loses nothing; docs/decisions/0005
HEARTBEAT_JITTER = 0.10  # a fleet that lost its leader together must not come back in step
STEADY_S = 5.0  # a link that held this long was a good one: its loss is the first failure, not the next

# Draws uniformly from [0, 1).
Draw = Callable[[], float]


def redial_delay_s(failures: int, draw: float) -> float:
    """Seconds to wait after `failures` failures in a row (from 1): 0.25 to 5, doubling, spread over the whole range.

    draw: uniform in [0, 1).
    """
    ceiling = min(REDIAL_MAX_S, 2 * REDIAL_MIN_S * 2 ** min(max(failures, 1) - 1, 16))
    return REDIAL_MIN_S + (ceiling - REDIAL_MIN_S) * draw


def failures_after(failures: int, lasted_s: float) -> int:
    """Failures in a row once a link that lasted this long has ended."""
    return 1 if lasted_s >= STEADY_S else failures + 1


def heartbeat_delay_s(heartbeat_ms: int, draw: float) -> float:
    """Seconds to the next heartbeat: the leader's interval, 10 % more or less. draw: uniform in [0, 1)."""
    return heartbeat_ms / 1000 * (1 - HEARTBEAT_JITTER + 2 * HEARTBEAT_JITTER * draw)
