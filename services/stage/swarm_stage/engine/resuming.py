"""How a reply that goes on begins on stage 0: from what was kept, by computing its own layers again, or anew."""

from collections.abc import Collection

from silentswarm.ring.v1 import ring_pb2

from swarm_stage.engine.next_steps import introduce
from swarm_stage.engine.rebuilding import rebuild_frames
from swarm_stage.engine.reply import Reply
from swarm_stage.engine.session_store import KEPT_S, KeptSession, SessionStore


class Resuming:
    """Stage 0's part in it. The other stages take up what they kept by the reply's key, or fail the session."""

    def __init__(self, store: SessionStore, stage_count: int, rebuild_tokens: int) -> None:
        """rebuild_tokens: of a piece that rebuilds stage 1 from a tape."""
        self._store = store
        self._stage_count = stage_count
        self._rebuild_tokens = rebuild_tokens
        self._fresh: Collection[int] = ()
        self._lost_own_until_s = 0.0

    @property
    def is_next_fresh(self) -> bool:
        """Stage 1 holds nothing of an older epoch."""
        return self._stage_count > 1 and 1 in self._fresh

    def begin_epoch(self, fresh: Collection[int], now_s: float) -> None:
        """A ring begins in which sessions are kept. fresh: stages that hold nothing of an older one."""
        self._fresh = fresh
        others_kept = 0 in fresh and len(set(fresh)) < self._stage_count
        self._lost_own_until_s = now_s + KEPT_S if others_kept else now_s

    def end_epoch(self) -> None:
        """What was kept is gone on every stage."""
        self._fresh, self._lost_own_until_s = (), 0.0

    def prepare(self, reply: Reply, now_s: float) -> None:
        """Decide, when a reply is admitted, from where it is computed."""
        if not reply.request.resume_ids:
            return
        pos = len(reply.request.given_ids) - 1
        kept = self._store.take(reply.request.reply_key)
        if kept is None and now_s < self._lost_own_until_s:
            reply.resumes_at = pos
        elif kept is not None and self._is_enough(kept, pos):
            reply.kept, reply.resumes_at, reply.prompt_sent = kept, pos, pos
        else:
            self._store.give_up(kept)

    def open(self, reply: Reply) -> list[ring_pb2.Frame]:
        """Begin the session of a reply, and what rebuilds the next stage for it. Raises as Compute.open."""
        request, kept = reply.request, reply.kept
        reply.kept = None
        if kept is not None and self._store.adopt(reply.session, kept, reply.resumes_at):
            return self._rebuild_next(reply)
        if kept is not None:
            reply.resumes_at = reply.prompt_sent = 0
        self._store.open(reply.session, request.reply_key, request.needed_tokens, request.adapter)
        return []

    def piece(self, reply: Reply, tokens: int) -> tuple[int, bool]:
        """How many tokens a piece may have, and whether it is of what the other stages kept."""
        missing = reply.resumes_at - reply.prompt_sent
        return (min(tokens, missing), True) if missing > 0 else (tokens, False)

    def _is_enough(self, kept: KeptSession, pos: int) -> bool:
        """What was kept goes as far as the reply, with what stage 1 must be rebuilt from if it is fresh."""
        if kept.held.length < pos:
            return False
        return not self.is_next_fresh or (kept.tape is not None and kept.tape.positions >= pos)

    def _rebuild_next(self, reply: Reply) -> list[ring_pb2.Frame]:
        tape = self._store.tape(reply.session, reply.resumes_at) if self.is_next_fresh else None
        if tape is None:
            return []
        first = ring_pb2.Hidden()
        introduce(first, reply)
        return rebuild_frames(reply.session, tape, reply.resumes_at, self._rebuild_tokens, first)
