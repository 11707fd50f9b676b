"""Whether the leader can take work. Looks; repairs nothing."""

import shutil
from pathlib import Path

from swarm_core.clock import Clock

from swarm_leader.domain.ports import Ledger

GIGABYTE = 1e9


class Health:
    """Starting, then taking work, then stopping."""

    def __init__(self, ledger: Ledger, data_dir: Path, min_free_disk_gb: float, clock: Clock) -> None:
        self._ledger = ledger
        self._data_dir = data_dir
        self._min_free_disk_gb = min_free_disk_gb
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self.phase = "starting"  # "starting", "serving", "stopping"

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return self._clock.monotonic_s() - self._started_s

    async def find_reasons(self) -> list[str]:
        """Why it takes no work; empty when it does."""
        reasons = [] if self.phase == "serving" else [self.phase]
        refusal = await self._ledger.is_writable()
        if refusal:
            reasons.append(f"database not writable: {refusal}")
        try:
            free_gb = shutil.disk_usage(self._data_dir).free / GIGABYTE
        except OSError as error:
            reasons.append(f"disk: {error}")
            return reasons
        if free_gb < self._min_free_disk_gb:
            reasons.append(f"disk: {free_gb:.1f} GB free, {self._min_free_disk_gb:.1f} GB needed")
        return reasons
