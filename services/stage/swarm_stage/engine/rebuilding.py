"""Rebuilding a fresh stage: frames made of a tape on one side, pieces that wait their turn on the other. No compute."""

from collections import deque

from silentswarm.ring.v1 import ring_pb2

from swarm_stage.engine.frames import put_hidden
from swarm_stage.engine.tape import Tape

# Of a piece: others' steps wait for one at a time. Not smaller, whatever prompt pieces are: all that tapes hold waits
# in front of the link as so many batches (ring/wiring.py, OUTBOX_MAX).
REBUILD_TOKENS = 256


def rebuild_frames(
    session: int, tape: Tape, stop: int, piece_tokens: int, first: ring_pb2.Hidden
) -> list[ring_pb2.Frame]:
    """Frames that give the next stage positions 0 to stop. first: hidden part of a first frame."""
    frames: list[ring_pb2.Frame] = []
    for start in range(0, stop, piece_tokens):
        frame = ring_pb2.Frame(session=session, pos=start)
        if not start:
            frame.hidden.CopyFrom(first)
            for field in ("hidden", "coded", "sample", "resumes", "allowed"):
                frame.hidden.ClearField(field)
        put_hidden(frame.hidden, tape.cut(start, min(stop, start + piece_tokens)))
        frame.hidden.rebuilds = True
        frames.append(frame)
    return frames


class Backlog:
    """Frames that wait behind others' steps, in order: pieces to rebuild, and what goes on once they are through."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[ring_pb2.Frame, float]] = deque()
        self._stops: dict[int, int] = {}  # by session: where its next piece must start
        self._whole: set[int] = set()  # sessions whose step behind the pieces is here: nothing more may come before it

    def __len__(self) -> int:
        return len(self._waiting)

    def next_pos(self, session: int) -> int:
        """Where the session's next piece must start."""
        return self._stops.get(session, 0)

    def waits(self, session: int) -> bool:
        """Something of the session is still to be computed."""
        return any(frame.session == session for frame, _ in self._waiting)

    def add(self, frame: ring_pb2.Frame, positions: int, arrived_s: float) -> None:
        """Put a frame behind the others. It is copied: the batch it came in is not its own."""
        waiting = ring_pb2.Frame()
        waiting.CopyFrom(frame)
        self._waiting.append((waiting, arrived_s))
        self._stops[frame.session] = frame.pos + positions
        if not positions:
            self._whole.add(frame.session)

    def is_whole(self, session: int) -> bool:
        """Its step behind the pieces waits already."""
        return session in self._whole

    def take(self) -> tuple[ring_pb2.Frame, float]:
        """The next one, and when it came."""
        return self._waiting.popleft()

    def drop(self, session: int) -> None:
        """The session is over."""
        self._whole.discard(session)
        if self._stops.pop(session, None) is not None:
            self._waiting = deque(entry for entry in self._waiting if entry[0].session != session)
