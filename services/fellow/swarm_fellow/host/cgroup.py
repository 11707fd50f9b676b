"""What a control group leaves of main memory, in containers and under systemd. Reads two folders; sets no limit."""

import contextlib
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# Pages of files, which the kernel gives back before it refuses memory; a model cache fills them. psutil's
# "available" counts them as free, too.
RECLAIMABLE = ("active_file", "inactive_file")


def memory_left_bytes(root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Least that the limits of our group and of those around it leave; None without a cgroup v2 limit."""
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            if line.startswith("0::"):
                own = root / line.removeprefix("0::").strip("/")
                groups = [group for group in (own, *own.parents) if group.is_relative_to(root)]
                return min((left for group in groups for left in _left_in(group)), default=None)
    return None


def _left_in(group: Path) -> list[int]:
    """One figure where this group has a limit, none where it has not."""
    with contextlib.suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            held_bytes = int((group / "memory.current").read_text()) - _reclaimable_bytes(group)
            return [max(int(limit) - max(held_bytes, 0), 0)]
    return []


def _reclaimable_bytes(group: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        figures = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return sum(int(figures.get(name, 0)) for name in RECLAIMABLE)
    return 0
