"""Whose prompt goes on next: callers by weight and tokens, within a caller in order. Pure; decides no sizes."""

from collections import deque
from dataclasses import dataclass, field

from swarm_core.fair_queue import FairQueue

from swarm_stage.engine.reply import Reply

SHORT_TOKENS = 512  # longer prompts let the others of their caller pass after each piece


@dataclass(eq=False)
class _Line:
    """The prompts of one caller; in the queue while there are any."""

    replies: deque[Reply] = field(default_factory=deque)


def is_short(reply: Reply) -> bool:
    """Its prompt is soon done; what comes behind it need not pass it."""
    return len(reply.request.given_ids) <= SHORT_TOKENS


class PromptOrder:
    """Prompts with tokens left to send.

    Short prompts of one caller are finished one after the other, since going on with all at once would finish them all
    late. A long one goes behind its caller's others after each piece.
    """

    def __init__(self) -> None:
        self._queue: FairQueue[_Line] = FairQueue()
        self._lines: dict[str, _Line] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def head(self) -> Reply:
        """The reply whose turn it is; there must be one."""
        return self._queue.heads()[0].replies[0]

    def add(self, reply: Reply, next_tokens: int) -> None:
        """Add a prompt, new or after a piece. next_tokens: what its next piece is expected to have."""
        caller = reply.request.caller
        line = self._lines.setdefault(caller, _Line())
        if reply.prompt_sent and is_short(reply):
            line.replies.appendleft(reply)
        else:
            line.replies.append(reply)
        self._count += 1
        if len(line.replies) == 1:
            self._queue.push(line, caller, reply.request.caller_weight, max(1, next_tokens))

    def take(self, next_tokens: int) -> Reply:
        """Remove the head. next_tokens: what the next piece of its caller is expected to have."""
        line = self._queue.heads()[0]
        self._queue.take(line)
        reply = line.replies.popleft()
        self._count -= 1
        self._keep(line, reply, next_tokens)
        return reply

    def drop(self, reply: Reply) -> None:
        """Its prompt goes no further."""
        line = self._lines.get(reply.request.caller)
        if line is None or reply not in line.replies:
            return
        line.replies.remove(reply)
        self._count -= 1
        if not line.replies:
            self._queue.drop(line)
            self._keep(line, reply, 1)

    def _keep(self, line: _Line, reply: Reply, next_tokens: int) -> None:
        request = reply.request
        if line.replies:
            self._queue.push(line, request.caller, request.caller_weight, max(1, next_tokens))
        else:
            del self._lines[request.caller]
