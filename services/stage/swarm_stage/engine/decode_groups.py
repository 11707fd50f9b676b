"""Which decoding sessions step together, and which batches are out in the ring. Pure; computes and sends nothing."""

from collections.abc import Iterator
from itertools import islice

from swarm_stage.engine.reply import DecodeBatch, Reply
from swarm_stage.engine.schedule import Plan


class DecodeGroups:
    """Sessions that want their next token, and batches that are out.

    A session that becomes ready while every group is out waits and joins the batch that returns next, so that groups
    grow together again after sessions came and went. First ready, first served, also beyond a cap.
    """

    def __init__(self) -> None:
        self._ready: dict[int, Reply] = {}
        self._awaited = 0  # sessions in batches that are out
        self._out = 0

    @property
    def sessions(self) -> int:
        """Decoding sessions, ready or out."""
        return len(self._ready) + self._awaited

    @property
    def out(self) -> int:
        """Batches in the ring of which an answer is still awaited."""
        return self._out

    def may_send(self, plan: Plan) -> bool:
        """A batch would leave now."""
        return bool(self._ready) and self._out < plan.groups

    def add(self, reply: Reply) -> None:
        """Its newest token is here; it wants the next."""
        self._ready[reply.session] = reply

    def batches(self, plan: Plan) -> Iterator[list[Reply]]:
        """Batches that leave now: of the sessions ready at the call, each at most once."""
        todo = len(self._ready)
        while todo > 0 and self.may_send(plan):
            size = min(todo, plan.group_size)
            todo -= size
            replies = [self._ready.pop(session) for session in list(islice(self._ready, size))]
            batch = DecodeBatch(len(replies), len(replies))
            for reply in replies:
                reply.batch = batch
            self._out += 1
            self._awaited += len(replies)
            yield replies
            todo = min(todo, len(self._ready))

    def answered(self, reply: Reply) -> DecodeBatch | None:
        """Its answer came. Returns its batch when this is the batch's first answer."""
        batch = self._leave(reply)
        if batch is None or batch.is_noted:
            return None
        batch.is_noted = True
        return batch

    def drop(self, reply: Reply) -> None:
        """It is over. Its batch is out no longer than its other sessions are awaited."""
        self._ready.pop(reply.session, None)
        self._leave(reply)

    def _leave(self, reply: Reply) -> DecodeBatch | None:
        batch, reply.batch = reply.batch, None
        if batch is None:
            return None
        self._awaited -= 1
        batch.awaited -= 1
        self._out -= batch.awaited == 0
        return batch
