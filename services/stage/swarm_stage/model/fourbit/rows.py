"""Whether 4-bit products of a few rows run faster as several of fewer rows. Pure: times in, a decision out.

bitsandbytes chooses its kernel by architecture and row count; on a GTX 1660 SUPER the one it takes from 4 rows on was
4.5 times slower than the one for 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swarm_core.errors import BadRequest

ROWS_MAX = 8  # calls of more rows are prompt pieces, and never split
SAVES_AT_LEAST = 0.15  # of the time: less may be noise of the measurement
AUTO, OFF = "auto", "off"


@dataclass(frozen=True)
class RowSplits:
    """Calls of these row counts are split into calls of at most part_rows. counts: ascending; none splits nothing."""

    part_rows: int = 0
    counts: tuple[int, ...] = ()

    def parts(self, rows: int) -> list[tuple[int, int]]:
        """The calls in place of one of so many rows, half open."""
        if rows not in self.counts:
            return [(0, rows)]
        return [(start, min(start + self.part_rows, rows)) for start in range(0, rows, self.part_rows)]

    def __str__(self) -> str:
        if not self.counts:
            return "no call is split"
        which = "calls of more rows"
        if self.counts != tuple(range(self.part_rows + 1, ROWS_MAX + 1)):
            which = f"calls of {', '.join(map(str, self.counts))} rows"
        return f"{which} split into {self.part_rows}"


def choose_row_splits(block_ms: Mapping[int, float]) -> RowSplits:
    """The split that makes calls of 1 to 8 rows cheapest in sum, each at least SAVES_AT_LEAST cheaper than unsplit.

    block_ms: measured times by row count; unless all of 1 to 8 are there nothing is split.
    """
    if any(rows not in block_ms for rows in range(1, ROWS_MAX + 1)):
        return RowSplits()
    best, best_ms = RowSplits(), sum(block_ms[rows] for rows in range(1, ROWS_MAX + 1))
    for part_rows in range(ROWS_MAX - 1, 0, -1):
        cheaper = {
            rows: split_ms
            for rows in range(part_rows + 1, ROWS_MAX + 1)
            if (split_ms := _split_ms(block_ms, rows, part_rows)) <= (1 - SAVES_AT_LEAST) * block_ms[rows]
        }
        in_sum_ms = sum(cheaper.get(rows, block_ms[rows]) for rows in range(1, ROWS_MAX + 1))
        if cheaper and in_sum_ms < best_ms:
            best, best_ms = RowSplits(part_rows, tuple(cheaper)), in_sum_ms
    return best


def asked_row_splits(setting: str) -> RowSplits | None:
    """What SWARM_SERVE_4BIT_ROWS asks for; None leaves it to the measurement. Raises BadRequest for anything else."""
    if setting == AUTO:
        return None
    if setting == OFF:
        return RowSplits()
    if not (setting.isascii() and setting.isdigit() and 1 <= int(setting[:4]) < ROWS_MAX):
        raise BadRequest(
            f"4-bit rows {setting[:40]!r} must be {AUTO}, {OFF} or a number from 1 to {ROWS_MAX - 1}",
            field="fourbit_rows",
        )
    return RowSplits(int(setting), tuple(range(int(setting) + 1, ROWS_MAX + 1)))


def _split_ms(block_ms: Mapping[int, float], rows: int, part_rows: int) -> float:
    whole, rest = divmod(rows, part_rows)
    return whole * block_ms[part_rows] + (block_ms[rest] if rest else 0.0)
