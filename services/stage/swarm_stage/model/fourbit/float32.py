"""For which row counts 4-bit products run clearly faster in float32. Pure: times and free bytes in, a decision out.

bitsandbytes sends float16 calls of up to a few hundred rows to a kernel for tensor cores, which a GTX 1660 lacks: a
prompt piece of 256 tokens took 6 to 8 s there, against 2 s in float32 on a slower card.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swarm_core.errors import BadRequest

from swarm_stage.model.fourbit.rows import AUTO, OFF, ROWS_MAX, SAVES_AT_LEAST

SPARE_BYTES = 300 * 2**20  # beside twice the buffer: a card's free memory lies in pieces


@dataclass(frozen=True)
class Float32Rows:
    """Which calls are computed in float32.

    measured: every row count measured, ascending. faster: those of them where float32 is taken. lacks_room: it might be
    faster for prompt pieces too, but there is no memory for them.
    """

    measured: tuple[int, ...] = ()
    faster: frozenset[int] = frozenset()
    lacks_room: bool = False

    def covers(self, rows: int) -> bool:
        """Whether a call of so many rows is one. Between two measured counts both must be; beyond the last, it."""
        if not self.faster or (rows > ROWS_MAX and not self.has_pieces):
            return False
        below = [count for count in self.measured if count <= rows]
        above = [count for count in self.measured if count >= rows]
        return bool(below) and below[-1] in self.faster and (not above or above[0] in self.faster)

    @property
    def has_pieces(self) -> bool:
        """Whether prompt pieces are computed in float32."""
        return any(rows > ROWS_MAX for rows in self.faster)

    def __str__(self) -> str:
        taken = sorted(self.faster)
        words = "float32 for no call"
        if taken:
            is_open = tuple(taken) == self.measured[-len(taken) :]
            words = f"float32 from {taken[0]} rows up" if is_open else f"float32 at {', '.join(map(str, taken))} rows"
        return words + ("; no room for float32 prompt pieces" if self.lacks_room else "")


def choose_float32_rows(
    own_ms: Mapping[int, float], float32_ms: Mapping[int, float], free_bytes: int, buffer_bytes: int
) -> Float32Rows:
    """Float32 where it saves SAVES_AT_LEAST of the time.

    own_ms, float32_ms: measured by row count, in what the stage computes in and in float32. free_bytes: on the device,
    after the load. buffer_bytes: its largest 4-bit weight in float32, held while a prompt piece runs through it.
    """
    measured = tuple(sorted(own_ms.keys() & float32_ms.keys()))
    faster = {rows for rows in measured if float32_ms[rows] <= (1 - SAVES_AT_LEAST) * own_ms[rows]}
    pieces = {rows for rows in own_ms if rows > ROWS_MAX and (rows in faster or rows not in float32_ms)}
    lacks_room = bool(pieces and float32_ms) and not has_piece_room(free_bytes, buffer_bytes)
    return Float32Rows(measured, frozenset(faster - pieces if lacks_room else faster), lacks_room)


def has_piece_room(free_bytes: int, buffer_bytes: int) -> bool:
    """Whether a prompt piece in float32 is sure of its buffer; without it none is tried, not even to be timed."""
    return free_bytes >= 2 * buffer_bytes + SPARE_BYTES


def is_float32_measured(setting: str) -> bool:
    """What SWARM_SERVE_4BIT_FLOAT32 asks for. Raises BadRequest for what is no setting."""
    if setting not in (AUTO, OFF):
        raise BadRequest(f"4-bit float32 {setting[:40]!r} must be {AUTO} or {OFF}", field="fourbit_float32")
    return setting == AUTO
