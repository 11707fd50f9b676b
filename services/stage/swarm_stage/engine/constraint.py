"""What the engine asks of a reply's shape: which tokens may come next, and what was drawn. No grammar in here."""

from typing import Protocol

from silentswarm.core.v1 import token_set_pb2


class Constraint(Protocol):
    """The shape of one reply. Only the engine thread calls it, and nothing else of the ring moves meanwhile.

    It follows the tokens of the reply alone, so one that is given tokens again stands where it stood. Whatever either
    call raises fails this reply and no other.
    """

    def allowed(self) -> token_set_pb2.TokenSet | None:
        """The tokens that may be drawn next, ends of turn where the reply may end; None is any.

        Called once before each token is asked for. An empty set fails the reply.
        """

    def accept(self, token: int) -> None:
        """`token` was drawn, an end of turn included."""
