"""Whether a fellow keeps a spare stage process, and when it tries again after one died. Pure."""

MODES = ("auto", "on", "off")
GIB = 2**30
SPARE_BYTES = GIB // 2  # torch and transformers imported, and no model
RESERVE_BYTES = 2 * GIB  # of main memory, that "auto" leaves to others before it starts one
SHORT_BYTES = GIB  # with less free than this "auto" ends the one there is
LINGER_S = 3.0  # a stage is evicted just before the next is loaded
LINGER_CRASHED_S = 30.0  # a stage that crashed is loaded again, unless its leader finds nobody
RETRY_MIN_S = 5.0
RETRY_MAX_S = 300.0


def has_room(mode: str, free_bytes: int | None, is_there: bool) -> bool:
    """Whether memory allows a spare. free_bytes: of main memory, None is unknown. is_there: one is running already."""
    if mode != "auto":
        return mode == "on"
    if free_bytes is None:
        return False
    return free_bytes >= (SHORT_BYTES if is_there else RESERVE_BYTES + SPARE_BYTES)


def linger_s(has_crashed: bool) -> float:
    """Seconds that a spare outlives the last stage. has_crashed: that stage ended though nobody asked."""
    return LINGER_CRASHED_S if has_crashed else LINGER_S


def retry_after_s(failures: int) -> float:
    """Seconds to the next spare after so many (from 1) that died or did not start: 5, doubling, at most 300."""
    return min(RETRY_MIN_S * 2 ** min(max(failures, 1) - 1, 16), RETRY_MAX_S)
