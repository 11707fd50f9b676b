"""Which cached files make room for new ones. Pure: it chooses, it drops nothing."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class CachedFile:
    """A file that no stage needs now. used_s: when one last did, on any clock that all share."""

    name: str
    size_bytes: int
    used_s: float


def bytes_to_drop(
    incoming_bytes: int, disk_free_bytes: int, disk_kept_bytes: int, cache_bytes: int, cache_bytes_max: int
) -> int:
    """What the disk or the cache's own limit is short of, 0 when neither is.

    incoming_bytes: still to be fetched. disk_kept_bytes: kept free on the disk. cache_bytes_max: 0 is no limit.
    """
    disk_short = incoming_bytes + disk_kept_bytes - disk_free_bytes if incoming_bytes > 0 else 0
    cache_over = cache_bytes + incoming_bytes - cache_bytes_max if cache_bytes_max > 0 else 0
    return max(disk_short, cache_over, 0)


def choose_dropped(files: Iterable[CachedFile], wanted_bytes: int) -> list[str]:
    """The least recently used, no more than give wanted_bytes; all of them when they give less."""
    dropped: list[str] = []
    for file in sorted(files, key=lambda file: (file.used_s, file.name)):
        if wanted_bytes <= 0:
            break
        dropped.append(file.name)
        wanted_bytes -= file.size_bytes
    return dropped
