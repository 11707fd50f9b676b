"""Whose prompt goes on next and by how many tokens. Pure; computes and sends nothing."""

import math

from swarm_stage.engine.prompt_order import PromptOrder, is_short
from swarm_stage.engine.reply import Reply
from swarm_stage.engine.schedule import PIECE_TOKENS_UNMEASURED, SHARE, Pace, Planner, pace_pieces, piece_tokens

DEBT_CYCLES_MAX = 5.0  # a piece that was foreseen far too dear must not keep prompts waiting for ever
# By how many cycles a piece may hold a step up: no gap reaches three times the median where short prompts keep coming,
# nor four times where a long one comes once in a while.
SHORT_GAP = 1.75
LONG_GAP = 2.75
UNUSED_CYCLES_MAX = 16.0


class PromptPieces:
    """Prompts on their way, one piece a turn, callers by their weights, at most one piece per stage in the ring.

    While sessions decode, prompts may take nearly as much of the slowest stage as decoding itself does: every decode
    batch earns its part of a cycle, every piece spends the cycles that schedule.py's pace has for it. So the time
    between others' tokens at most doubles, however long the prompt and however dear the shortest piece.

    What prompts leave unused is kept for a while and serves short ones: a few people who ask at once would wait long
    for each other in the smallest of pieces. They hold a step up once in a while, and by less than two cycles.
    """

    def __init__(self, planner: Planner, chunk_tokens: int) -> None:
        """chunk_tokens: most tokens of a piece, 0 is no limit."""
        self._planner = planner
        self._costs = planner.costs
        self._chunk_tokens = chunk_tokens or 2**31
        self._order = PromptOrder()
        self._size = self._chunk_tokens  # of the piece that left last, before it was cut to what its prompt had left
        self._out = 0
        self._earned_cycles = 0.0
        self._unused_ms = 0.0
        self._has_earned = False  # a decode batch left since the last piece

    @property
    def out(self) -> int:
        """Pieces in the ring."""
        return self._out

    def add(self, reply: Reply) -> None:
        """Its prompt has tokens left to send."""
        self._order.add(reply, min(len(reply.request.given_ids) - reply.prompt_sent, self._size))

    def drop(self, reply: Reply) -> None:
        """It is over; pieces of it in the ring are awaited no longer."""
        if reply.is_prefilling:
            self._order.drop(reply)
        if not reply.has_drawn:
            self._out -= len(reply.due)

    def sent(self) -> None:
        """The piece taken last is on its way; its answer is awaited."""
        self._out += 1

    def answered(self) -> None:
        """A piece came round."""
        self._out -= 1

    def earn(self, decoding: int) -> None:
        """A decode batch of so many decoding sessions left."""
        self._has_earned = True
        plan = self._planner.plan(decoding)
        if plan.cycle_ms is None:
            return
        earned_cycles = self._earned_cycles + 1 / plan.groups
        self._earned_cycles = min(1.0, earned_cycles)
        unused_ms = self._unused_ms + max(0.0, earned_cycles - 1.0) * SHARE * plan.cycle_ms
        self._unused_ms = min(unused_ms, UNUSED_CYCLES_MAX * self._full_cycle_ms(decoding))

    def may_send(self, decoding: int) -> bool:
        """A piece would leave now, beside so many decoding sessions."""
        if self._out >= self._costs.stage_count or not len(self._order):
            return False
        if not decoding:
            return True
        reply = self._order.head
        pace = self._pace(reply, decoding)
        if pace is None:
            return self._has_earned
        if self._uses_unused(reply, decoding):
            return True
        return self._earned_cycles >= (pace.cycles if pace.cycles <= 1 else 0)

    def take(self, decoding: int) -> tuple[Reply, int]:
        """The reply whose piece leaves now, and its tokens; only when one may. Put it back with add if more is left."""
        reply = self._order.head
        pace = self._pace(reply, decoding)
        uses_unused = decoding > 0 and self._uses_unused(reply, decoding)
        if not decoding:
            self._size = self._chunk_tokens
        elif uses_unused:
            self._size = self._size_from_unused(decoding)
        else:
            self._size = pace.tokens if pace is not None else min(self._chunk_tokens, PIECE_TOKENS_UNMEASURED)
        tokens = min(self._size, len(reply.request.given_ids) - reply.prompt_sent)
        self._order.take(self._size)
        self._has_earned = False
        if not decoding:
            self._earned_cycles, self._unused_ms = 0.0, math.inf  # inf: as much as can be kept, when a step earns next
        elif uses_unused:
            self._unused_ms -= self._price_ms(tokens)
        elif pace is not None:
            cycles = pace.cycles * self._price_ms(tokens) / pace.piece_ms
            self._earned_cycles = max(self._earned_cycles - cycles, -DEBT_CYCLES_MAX)
        return reply, tokens

    def _uses_unused(self, reply: Reply, decoding: int) -> bool:
        """Its next piece is paid by what prompts left unused, and is the only one between two decode batches."""
        if not self._has_earned or not is_short(reply) or self._costs.pieces is None:
            return False
        if not self._full_cycle_ms(decoding):
            return False
        return self._unused_ms >= self._price_ms(self._size_from_unused(decoding))

    def _full_cycle_ms(self, decoding: int) -> float:
        """The cycle when all whose prompts are on their way decode too: what those who decode will live with anyway."""
        beside = len(self._order) if self._costs.are_steps_fitted else 0
        return self._planner.plan(decoding + beside).cycle_ms or 0.0

    def _pace(self, reply: Reply, decoding: int) -> Pace | None:
        """How its pieces go beside decoding sessions; None while costs are unknown."""
        cycle_ms, costs = self._planner.plan(decoding).cycle_ms, self._costs.pieces
        if not cycle_ms or costs is None:
            return None
        held_up_cycles = SHORT_GAP if is_short(reply) else LONG_GAP
        return pace_pieces(costs, cycle_ms, self._convoy(decoding), held_up_cycles, self._chunk_tokens)

    def _size_from_unused(self, decoding: int) -> int:
        """Tokens of a piece that is paid by what prompts left unused; costs are known."""
        most_ms = SHORT_GAP * self._full_cycle_ms(decoding) / self._convoy(decoding)
        return min(self._chunk_tokens, piece_tokens(self._costs.pieces or (), most_ms))

    def _convoy(self, decoding: int) -> int:
        """In a convoy behind one piece a step is held up at every stage, so a piece is a stage's part of a cycle."""
        return max(self._planner.plan(decoding).groups, self._costs.stage_count)

    def _price_ms(self, tokens: int) -> float:
        """What a piece is foreseen to cost the slowest stage; 0 while nobody knows."""
        return max((cost.of(tokens) for cost in self._costs.pieces or ()), default=0.0)
