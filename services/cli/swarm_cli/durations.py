"""Spans of time as people write and read them. Reads no clock but what it is given."""

import re
import time

from swarm_core.errors import BadRequest

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FORM = re.compile(r"(\d{1,9})([smhd])")


def read_duration(text: str, field: str) -> int:
    """Seconds of "90s", "15m", "12h" or "30d". Raises BadRequest."""
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise BadRequest(f"--{field} {text!r}: write a number and a unit, such as 90s, 15m, 12h or 30d", field=field)
    return int(found[1]) * UNITS_S[found[2]]


def duration_text(seconds: float) -> str:
    """The two largest units that matter: "29 d 23 h", "12 m 5 s"."""
    left_s, parts = max(0, int(seconds)), []
    for unit, unit_s in sorted(UNITS_S.items(), key=lambda item: -item[1]):
        count, left_s = divmod(left_s, unit_s)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def moment_text(unix_s: int | None) -> str:
    """A moment in local time, to the minute; "-" for never."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s)) if unix_s is not None else "-"
