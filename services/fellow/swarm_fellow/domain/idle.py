"""When an idle model is unloaded. Pure; a generation that runs is never interrupted."""

REAP_INTERVAL_MAX_S = 5.0
REAP_INTERVAL_MIN_S = 0.05  # a test may set a tiny limit; the reaper must still let the loop breathe


def is_reapable(idle_s: float, sessions: int, replies_open: int, idle_unload_s: float) -> bool:
    """Whether a stage has been idle long enough.

    idle_s, sessions: as the stage says. replies_open: replies this fellow has handed to it and not seen the end of;
    they count although the stage may not have a session for them yet. idle_unload_s: 0 never unloads.
    """
    if idle_unload_s <= 0 or sessions > 0 or replies_open > 0:
        return False
    return idle_s >= idle_unload_s


def reap_interval_s(idle_unload_s: float) -> float:
    """How often to look, in seconds: a quarter of the limit, at most 5 s."""
    return max(min(idle_unload_s / 4, REAP_INTERVAL_MAX_S), REAP_INTERVAL_MIN_S)
