"""Signals to fellows: each is sent once and awaited until its one result, its deadline, or the end of the link."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from silentswarm.core.v1 import reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import DeadlinePassed, FellowLost, Reason, RemoteError, SwarmError

from swarm_leader.domain.told import cut_words
from swarm_leader.flows.link import Link

# The fellow keeps the deadline and says why it was missed; the leader waits this much longer for its words.
ANSWER_GRACE_S = 2.0
ControlLink = Link[link_pb2.ConnectResponse]
OnProgress = Callable[[link_pb2.SignalProgress], None]


@dataclass
class _Waiting:
    link: ControlLink
    kind: str
    result: "asyncio.Future[link_pb2.SignalResult]"
    on_progress: OnProgress | None


class Signals:
    """All signals that wait for a result."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}

    async def send(
        self, link: ControlLink, signal: link_pb2.Signal, timeout_s: float, on_progress: OnProgress | None = None
    ) -> link_pb2.SignalResult:
        """Send one signal (its id and timeout are set here) and wait for what came of it.

        Raises RemoteError (the fellow failed it), FellowLost (its link ended), DeadlinePassed (no answer in time).
        """
        signal.signal_id = next(self._ids)
        signal.timeout_ms = int(timeout_s * 1000)
        kind = str(signal.WhichOneof("kind"))
        result: asyncio.Future[link_pb2.SignalResult] = asyncio.get_running_loop().create_future()
        self._waiting[signal.signal_id] = _Waiting(link, kind, result, on_progress)
        try:
            link.send(link_pb2.ConnectResponse(signal=signal))
            async with asyncio.timeout(timeout_s + ANSWER_GRACE_S):
                answer = await result
        except TimeoutError:
            raise DeadlinePassed(
                f"fellow {link.fellow_name} did not answer {kind} within {timeout_s:g} s", fellow=link.fellow_name
            ) from None
        finally:
            del self._waiting[signal.signal_id]
        if answer.WhichOneof("outcome") == "failure":
            facts = dict(answer.failure.metadata)
            raise RemoteError(read_reason(answer.failure.reason), cut_words(answer.failure.message), **facts)
        return answer

    def take_link_end(self, link: ControlLink, why: SwarmError) -> None:
        """A link ended: whoever waits for a result on it hears so at once."""
        for waiting in self._waiting.values():
            if waiting.link is link and not waiting.result.done():
                name = link.fellow_name
                words = f"fellow {name} was lost during {waiting.kind}: {why.message}"
                waiting.result.set_exception(FellowLost(words, fellow=name))
                waiting.result.exception()  # whoever waited may be gone; asyncio need not warn

    def take_result(self, link: ControlLink, answer: link_pb2.SignalResult) -> None:
        """A result came; one for a signal nobody waits for, or from another link, is dropped."""
        waiting = self._waiting.get(answer.signal_id)
        if waiting is not None and waiting.link is link and not waiting.result.done():
            waiting.result.set_result(answer)

    def take_progress(self, link: ControlLink, progress: link_pb2.SignalProgress) -> None:
        """A signal is being worked on."""
        waiting = self._waiting.get(progress.signal_id)
        if waiting is not None and waiting.link is link and waiting.on_progress is not None:
            waiting.on_progress(progress)


def read_reason(number: int) -> Reason:
    """A reason of the wire; one that a newer peer made up reads as INTERNAL."""
    try:
        name = reason_pb2.Reason.Name(number).removeprefix("REASON_")
    except ValueError:
        return Reason.INTERNAL
    return Reason(name) if name in Reason.__members__ else Reason.INTERNAL
