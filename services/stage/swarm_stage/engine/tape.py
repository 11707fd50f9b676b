"""What a stage sent of its sessions, kept so that the next stage can be rebuilt. Bounded bytes; sends nothing."""

from silentswarm.core.v1 import tensor_pb2

from swarm_stage.engine.steps import WireHidden


class Tape:
    """Hidden states of one session from position 0 on, in the form they crossed the link: bit for bit."""

    def __init__(self) -> None:
        self.positions = 0
        self.is_lost = False
        self._data = bytearray()
        self._scales = bytearray()  # of codes; empty where the link is not coded
        self._kind = ""  # dtype or codec
        self._width = 0

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return len(self._data) + len(self._scales)

    def add(self, hidden: WireHidden) -> None:
        """The next positions. All of one session have one form."""
        if isinstance(hidden, tensor_pb2.CodedTensor):
            self._kind = hidden.codec
            self._data += hidden.codes
            self._scales += hidden.scales
        else:
            self._kind = hidden.dtype
            self._data += hidden.data
        self._width = hidden.shape[1]
        self.positions += hidden.shape[0]

    def crop(self, positions: int) -> None:
        """Forget every position from there on."""
        if positions >= self.positions:
            return
        del self._data[positions * self._row_bytes(self._data) :]
        del self._scales[positions * self._row_bytes(self._scales) :]
        self.positions = positions

    def cut(self, start: int, stop: int) -> WireHidden:
        """Positions start to stop, which are held, as they were sent."""
        assert 0 <= start < stop <= self.positions
        row_bytes, shape = self._row_bytes(self._data), [stop - start, self._width]
        data = bytes(self._data[start * row_bytes : stop * row_bytes])
        if not self._scales:
            return tensor_pb2.Tensor(dtype=self._kind, shape=shape, data=data)
        scale_bytes = self._row_bytes(self._scales)
        scales = bytes(self._scales[start * scale_bytes : stop * scale_bytes])
        return tensor_pb2.CodedTensor(codec=self._kind, shape=shape, codes=data, scales=scales)

    def clear(self) -> None:
        """Hold nothing, for good: what misses a position is of no use."""
        self.is_lost = True
        self.positions = 0
        self._data, self._scales = bytearray(), bytearray()

    def _row_bytes(self, rows: bytearray) -> int:
        return len(rows) // self.positions if self.positions else 0


class Tapes:
    """All tapes of a stage. When they are full whole ones go, the longest first: what it frees lasts longest."""

    def __init__(self, bytes_max: int) -> None:
        """bytes_max: of all together; 0 keeps none."""
        self._bytes_max = bytes_max
        self._tapes: set[Tape] = set()
        self.size_bytes = 0

    def begin(self) -> Tape | None:
        """A tape for a session that begins; None when none are kept."""
        if not self._bytes_max:
            return None
        tape = Tape()
        self._tapes.add(tape)
        return tape

    def record(self, tape: Tape, pos: int, hidden: WireHidden) -> None:
        """The session sent these positions from pos on. One that goes back forgets what stood there."""
        if tape.is_lost:
            return
        self.crop(tape, pos)
        if tape.positions != pos:
            self.free(tape)
            return
        before = tape.size_bytes
        tape.add(hidden)
        self.size_bytes += tape.size_bytes - before
        while self.size_bytes > self._bytes_max:
            self.free(max(self._tapes, key=lambda held: held.size_bytes))

    def crop(self, tape: Tape, positions: int) -> None:
        """The session goes on from there."""
        before = tape.size_bytes
        tape.crop(positions)
        self.size_bytes += tape.size_bytes - before

    def free(self, tape: Tape | None) -> None:
        """It is not wanted any more."""
        if tape is None or tape not in self._tapes:
            return
        self._tapes.remove(tape)
        self.size_bytes -= tape.size_bytes
        tape.clear()
