"""Whose prompt goes on next and by how many tokens. Pure; computes and sends nothing."""

from swarm_core.fair_queue import FairQueue

from swarm_stage.engine.reply import Reply
from swarm_stage.engine.schedule import PIECE_SHARE, PIECE_TOKENS_UNMEASURED, Plan, piece_tokens
from swarm_stage.engine.step_costs import RingCosts

DEBT_CYCLES_MAX = 4.0  # a piece that was foreseen far too dear must not keep prompts waiting for ever


class PromptPieces:
    """Prompts on their way, one piece a turn, callers by their weights, at most one piece per stage in the ring.

    While sessions decode, prompts may take as much of the slowest stage as decoding itself does: every decode batch
    earns its part of a cycle, every piece spends what it is foreseen to cost. So the time between others' tokens at
    most doubles, however long the prompt and however dear the shortest piece.
    """

    def __init__(self, costs: RingCosts, chunk_tokens: int) -> None:
        """chunk_tokens: most tokens of a piece, 0 is no limit."""
        self._costs = costs
        self._chunk_tokens = chunk_tokens or 2**31
        self._queue: FairQueue[Reply] = FairQueue()
        self._size = self._chunk_tokens  # of the piece that left last, before it was cut to what its prompt had left
        self._out = 0
        self._earned_ms = 0.0
        self._has_earned = False  # a decode batch left since the last piece

    @property
    def out(self) -> int:
        """Pieces in the ring."""
        return self._out

    def add(self, reply: Reply) -> None:
        """Its prompt has tokens left to send."""
        request = reply.request
        cost = max(1, min(len(request.prompt_ids) - reply.prompt_sent, self._size))
        self._queue.push(reply, request.caller, request.caller_weight, cost)

    def drop(self, reply: Reply) -> None:
        """It is over; pieces of it in the ring are awaited no longer."""
        if reply.is_prefilling:
            self._queue.drop(reply)
        if not reply.generated:
            self._out -= len(reply.due)

    def earn(self, plan: Plan) -> None:
        """A decode batch left."""
        self._has_earned = True
        if plan.cycle_ms is not None:
            share_ms = PIECE_SHARE * plan.cycle_ms
            self._earned_ms = min(share_ms, self._earned_ms + share_ms / plan.groups)

    def may_send(self, plan: Plan, decoding: int) -> bool:
        """A piece would leave now, beside so many decoding sessions."""
        if not len(self._queue) or self._out >= self._costs.stage_count:
            return False
        if not decoding:
            return True
        if plan.cycle_ms is None or self._costs.pieces is None:
            return self._has_earned
        return self._earned_ms >= min(self._price_ms(self._size_beside(plan)), PIECE_SHARE * plan.cycle_ms)

    def take(self, plan: Plan, decoding: int) -> tuple[Reply, int]:
        """The reply whose piece leaves now, and its tokens; only when one may. Put it back with add if more is left."""
        reply = self._queue.heads()[0]
        self._queue.take(reply)
        self._size = self._size_beside(plan) if decoding else self._chunk_tokens
        tokens = min(self._size, len(reply.request.prompt_ids) - reply.prompt_sent)
        self._out += 1
        self._has_earned = False
        if not decoding:
            self._earned_ms = 0.0
        elif plan.cycle_ms is not None:
            self._earned_ms = max(self._earned_ms - self._price_ms(tokens), -DEBT_CYCLES_MAX * plan.cycle_ms)
        return reply, tokens

    def answered(self) -> None:
        """A piece came round."""
        self._out -= 1

    def _size_beside(self, plan: Plan) -> int:
        """Tokens of a piece beside decoding sessions."""
        costs = self._costs.pieces
        if costs is None or plan.cycle_ms is None:
            return min(self._chunk_tokens, PIECE_TOKENS_UNMEASURED)
        # In a convoy behind one piece a step is held up at every stage, so a piece is a stage's part of a cycle.
        most_ms = PIECE_SHARE * plan.cycle_ms / max(plan.groups, self._costs.stage_count)
        return min(self._chunk_tokens, piece_tokens(costs, most_ms))

    def _price_ms(self, tokens: int) -> float:
        """What a piece is foreseen to cost the slowest stage; 0 while nobody knows."""
        return max((cost.of(tokens) for cost in self._costs.pieces or ()), default=0.0)
