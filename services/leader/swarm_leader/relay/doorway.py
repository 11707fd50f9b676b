"""How many streams may stand in the relay's doorway: of one connection, and of all that have not said who they are."""

from collections.abc import Iterator
from contextlib import contextmanager

from swarm_core.errors import Overloaded

STREAMS_PER_CONNECTION_MAX = 128  # a process that holds a stage of 32 rings has 64 ends
WAITING_MAX = 1024  # streams without an Attach so far; each may take 10 s


class Doorway:
    """Counts streams; refuses with Overloaded what is too many. Event loop only."""

    def __init__(self, per_connection_max: int = STREAMS_PER_CONNECTION_MAX, waiting_max: int = WAITING_MAX) -> None:
        self._per_connection_max = per_connection_max
        self._waiting_max = waiting_max
        self._streams: dict[str, int] = {}
        self._waiting = 0

    @contextmanager
    def stream_of(self, connection: str) -> Iterator[None]:
        """One stream of a connection ("ipv4:host:port"), from its first moment to its last. Raises Overloaded."""
        open_now = self._streams.get(connection, 0)
        if open_now >= self._per_connection_max:
            raise Overloaded(
                f"{open_now} streams of this connection are open, which is the most the relay carries for one",
                streams=open_now,
            )
        self._streams[connection] = open_now + 1
        try:
            yield
        finally:
            left = self._streams[connection] - 1
            if left:
                self._streams[connection] = left
            else:
                del self._streams[connection]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A stream that has not said which end it is. Raises Overloaded."""
        if self._waiting >= self._waiting_max:
            raise Overloaded(f"{self._waiting} streams have not said yet which end they are", waiting=self._waiting)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
