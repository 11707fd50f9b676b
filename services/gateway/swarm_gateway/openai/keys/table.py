"""Which keys are known, whose reply each has, and which is forgotten first. Pure: time is handed in, nothing is read.

Bounded in entries and in bytes: what ended longest ago goes first, and what runs is never taken from its readers.
"""

from collections import OrderedDict
from dataclasses import dataclass

from swarm_gateway.openai.keys.tape import Tape
from swarm_gateway.problems import HttpProblem, for_good, too_many

Name = tuple[str, str]  # caller, key


@dataclass(frozen=True)
class KeyLimits:
    """kept_s: how long a reply is kept after its end. grace_s: how long one goes on that nobody reads."""

    entries_max: int = 1024
    bytes_max: int = 64 * 2**20
    reply_bytes_max: int = 8 * 2**20
    kept_s: float = 600.0
    grace_s: float = 10.0


@dataclass
class Entry:
    """One key's reply. ended_s: on the clock of the table's user; None while it runs."""

    name: Name
    fingerprint: bytes
    tape: Tape
    held_bytes: int = 0
    ended_s: float | None = None


class KeyTable:
    """Entries by caller and key."""

    def __init__(self, limits: KeyLimits) -> None:
        self._limits = limits
        self._running: dict[Name, Entry] = {}
        self._ended: OrderedDict[Name, Entry] = OrderedDict()  # in the order of their ends
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    def find(self, name: Name, fingerprint: bytes, now_s: float) -> Entry | None:
        """The entry of this key, None when there is none.

        Raises HttpProblem 409 when the key was used for another request, or its reply is not held from its beginning.
        """
        self._forget_old(now_s)
        entry = self._running.get(name) or self._ended.get(name)
        if entry is None:
            return None
        if entry.fingerprint != fingerprint:
            words = "this Idempotency-Key was used for another request; a new request needs a new key"
            raise _conflict(words, "idempotency_key_reused")
        if entry.tape.is_spent:
            words = "the reply to this Idempotency-Key is too large to be told again; a new request needs a new key"
            raise _conflict(words, "idempotency_reply_too_large")
        return entry

    def add(self, name: Name, fingerprint: bytes, tape: Tape) -> Entry:
        """A new entry that runs. Raises HttpProblem 429 when every place has a reply that runs."""
        while len(self) >= self._limits.entries_max and self._ended:
            self._drop_oldest()
        if len(self) >= self._limits.entries_max:
            words = f"{len(self)} replies with an Idempotency-Key are running; no more are taken"
            raise too_many(words)
        entry = self._running[name] = Entry(name, fingerprint, tape)
        return entry

    def grow(self, entry: Entry, size_bytes: int) -> bool:
        """More is held of an entry. Returns whether there is room for it: if not, its beginning is to be let go."""
        entry.held_bytes += size_bytes
        self.held_bytes += size_bytes
        while self.held_bytes > self._limits.bytes_max and self._ended:
            self._drop_oldest()
        return entry.held_bytes <= self._limits.reply_bytes_max and self.held_bytes <= self._limits.bytes_max

    def spend(self, entry: Entry) -> None:
        """Its beginning is let go; what is left of it is no more than what streams without a key hold."""
        self.held_bytes -= entry.held_bytes
        entry.held_bytes = 0

    def end(self, entry: Entry, now_s: float) -> None:
        """An entry's reply is whole."""
        if self._running.pop(entry.name, None) is not None:
            entry.ended_s = now_s
            self._ended[entry.name] = entry

    def drop(self, entry: Entry) -> None:
        """Forget a reply that failed or was given up: the next request with its key begins anew."""
        if self._running.pop(entry.name, None) is not None:
            self.held_bytes -= entry.held_bytes

    def _forget_old(self, now_s: float) -> None:
        while self._ended and now_s - (next(iter(self._ended.values())).ended_s or 0.0) > self._limits.kept_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, entry = self._ended.popitem(last=False)
        self.held_bytes -= entry.held_bytes


def _conflict(words: str, code: str) -> HttpProblem:
    return HttpProblem(for_good(409, words, code))
