"""The sessions a stage holds, and those of older epochs it keeps for replies that go on. Engine thread; no torch."""

from dataclasses import dataclass

from swarm_core.errors import StageFailed

from swarm_stage.engine.counters import Counters
from swarm_stage.engine.steps import Compute, Detached, WireHidden
from swarm_stage.engine.tape import Tape, Tapes

KEPT_S = 30.0  # a fleet heals within seconds; what nobody took up by then was given up
KEPT_MAX = 64  # sessions; more than a ring has in flight
KEY_BYTES = 16  # of Hidden.reply_key


@dataclass(frozen=True, eq=False, slots=True)
class KeptSession:
    """A session of an older epoch. reserved_tokens: what its cache may take. kept_s: since when."""

    key: bytes
    held: Detached
    reserved_tokens: int
    tape: Tape | None
    kept_s: float


@dataclass(frozen=True, eq=False, slots=True)
class _Open:
    key: bytes
    reserved_tokens: int
    tape: Tape | None


class SessionStore:
    """Opens and closes caches. A session with a key can be kept when its ring is over, and be taken up by that key."""

    def __init__(self, compute: Compute, counters: Counters, tape_bytes_max: int = 0) -> None:
        """tape_bytes_max: of hidden states kept for the next stage; 0 keeps none."""
        self._compute = compute
        self._counters = counters
        self._tapes = Tapes(tape_bytes_max)
        self._open: dict[int, _Open] = {}
        self._kept: dict[bytes, KeptSession] = {}  # oldest first

    @property
    def reserved_tokens(self) -> int:
        """Of the open sessions."""
        return sum(session.reserved_tokens for session in self._open.values())

    def open(self, session: int, key: bytes, reserved_tokens: int, adapter: str) -> None:
        """Begin a session with nothing held. What was kept of the same reply is of no use any more.

        Raises as Compute.open; what is kept does not stand in its way.
        """
        self.give_up(self.take(key))
        try:
            self._compute.open(session, reserved_tokens, adapter)
        except StageFailed:
            if not self._kept:
                raise
            self.drop_kept()
            self._compute.open(session, reserved_tokens, adapter)
        self._open[session] = _Open(key, reserved_tokens, self._tapes.begin() if key else None)

    def close(self, session: int) -> None:
        """Free a session; unknown ones are ignored."""
        closed = self._open.pop(session, None)
        if closed is not None:
            self._tapes.free(closed.tape)
        self._compute.close(session)

    def keep(self, session: int, now_s: float) -> None:
        """Its ring is over: keep it under its key, if it has one."""
        opened = self._open.get(session)
        held = self._compute.detach(session) if opened is not None and opened.key else None
        if opened is None or held is None:
            self.close(session)
            return
        del self._open[session]
        self.give_up(self.take(opened.key))
        self._kept[opened.key] = KeptSession(opened.key, held, opened.reserved_tokens, opened.tape, now_s)
        while len(self._kept) > KEPT_MAX:
            self._give_up_oldest()

    def take(self, key: bytes) -> KeptSession | None:
        """What is kept under a key, out of the store: adopt it or give it up."""
        return self._kept.pop(key, None)

    def put_back(self, kept: KeptSession) -> None:
        """What was taken out was not needed after all, and may be once more."""
        self._kept = {kept.key: kept, **self._kept}

    def adopt(self, session: int, kept: KeptSession, pos: int) -> bool:
        """Let a session go on at pos with what was kept. False, and all of it freed, when that holds less."""
        if not self._compute.attach(session, kept.held, pos):
            self.give_up(kept)
            return False
        if kept.tape is not None:
            self._tapes.crop(kept.tape, pos)
        self._open[session] = _Open(kept.key, kept.reserved_tokens, kept.tape)
        return True

    def give_up(self, kept: KeptSession | None) -> None:
        """Free what was taken out."""
        if kept is not None:
            self._tapes.free(kept.tape)

    def make_room(self, tokens: int) -> None:
        """Give up kept sessions, the oldest first, until the others take at most so many tokens."""
        while self._kept and sum(kept.reserved_tokens for kept in self._kept.values()) > tokens:
            self._give_up_oldest()

    def expire(self, now_s: float) -> None:
        """Give up what was kept for too long."""
        while self._kept and (wait_s := self.expires_in_s(now_s)) is not None and wait_s <= 0:
            self._give_up_oldest()

    def expires_in_s(self, now_s: float) -> float | None:
        """Time until something is to be given up; None when nothing is kept."""
        oldest = next(iter(self._kept.values()), None)
        return None if oldest is None else oldest.kept_s + KEPT_S - now_s

    def drop_kept(self) -> None:
        """Give up all that is kept."""
        self.make_room(-1)

    def record(self, session: int, pos: int, hidden: WireHidden) -> None:
        """The session sent these to the next stage."""
        opened = self._open.get(session)
        if opened is not None and opened.tape is not None:
            self._tapes.record(opened.tape, pos, hidden)

    def tape(self, session: int, positions: int) -> Tape | None:
        """What rebuilds the next stage up to there; None when it is not all held."""
        opened = self._open.get(session)
        tape = opened.tape if opened is not None else None
        return tape if tape is not None and tape.positions >= positions else None

    def count(self) -> None:
        """Bring the live figures up to date. What is kept is not in use: whoever needs its room gets it."""
        counters = self._counters
        counters.kv_tokens_used = self._compute.held_tokens()
        counters.sessions_kept = len(self._kept)
        counters.tape_bytes = self._tapes.size_bytes

    def _give_up_oldest(self) -> None:
        self.give_up(self.take(next(iter(self._kept))))
