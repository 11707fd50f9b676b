"""A reply as pieces for its reader: what to send, and while there is nothing, where the request stands."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

import structlog
from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import SwarmError

from swarm_gateway.metrics import ReplyMeter
from swarm_gateway.openai.replies.asked import Asked, Event, Wording, in_words_of
from swarm_gateway.problems import HttpProblem, problem_in
from swarm_gateway.sse import KEEP_ALIVE

log = structlog.get_logger()


class Piece(NamedTuple):
    """Something of a reply. frames: for the wire. standing: for people, of a reply that waits; without frames."""

    frames: bytes = b""
    standing: str = ""


class ReplyBroke(Exception):
    """A reply failed. error: for a reader who was sent nothing. last_words: for one who was."""

    def __init__(self, error: SwarmError | HttpProblem, last_words: bytes) -> None:
        super().__init__(str(error))
        self.error = error
        self.last_words = last_words


async def reply_pieces(
    asked: Asked, wording: Wording, events: AsyncGenerator[tuple[int, Event], None], meter: ReplyMeter
) -> AsyncGenerator[Piece, None]:
    """Everything there is to send, in order; nothing before the first token exists. Raises ReplyBroke.

    The meter hears of the end, also when this is closed before it.
    """
    last = generation_pb2.FINISH_REASON_STOP
    begun: set[int] = set()
    try:
        async with aclosing(events):
            async for choice, event in events:
                kind = event.WhichOneof("event")
                frames = b""
                if kind == "tokens":
                    meter.tokens(len(event.tokens.ids))
                    frames = wording.tokens(choice, event.tokens)
                elif kind == "started":
                    meter.started(asked.model, event.started.prompt_tokens)
                    if not begun:
                        yield Piece(standing=KEEP_ALIVE)
                elif kind == "done":
                    last = event.done.finish_reason
                    frames = wording.done(choice, event.done)
                # A choice that begins later than others is no news; one that is held in its middle is.
                elif kind == "queued" and (choice in begun or not begun):
                    yield Piece(standing=standing_of(event.queued))
                if frames:
                    begun.add(choice)
                    yield Piece(frames)
                    if kind == "tokens":
                        meter.said()
        yield Piece(wording.end())
        meter.done(last)
    except (SwarmError, HttpProblem) as error:
        meter.failed()
        log.warning("reply failed", why=str(error))
        told = in_words_of(error, asked.params)
        raise ReplyBroke(told, wording.failure(problem_in(told))) from None
    except Exception:
        meter.failed()
        raise
    finally:
        meter.gone()  # what has no end until here has lost its reader


def standing_of(queued: generation_pb2.GenerationEvent.Queued) -> str:
    """Where a request that waits stands, for people."""
    position = f"waiting, position {queued.position}"
    return f"{position}: {queued.reason}" if queued.reason else position
