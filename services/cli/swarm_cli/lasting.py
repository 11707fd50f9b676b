"""The events of one reply, over as many calls as it takes: a leader that is restarted costs a pause. Shows nothing."""

from collections.abc import AsyncGenerator, Callable

from silentswarm.leader.v1 import inference_pb2
from swarm_core.errors import Reason, SwarmError
from swarm_rpc.lasting_reply import Ask, lasting_events

from swarm_cli.failures import LeaderUnreachable
from swarm_cli.leader import Leader

RESUME_S = 60.0  # a reply waits so long for a leader that was lost in it, as at the gateway
AWAY = "the leader went away; the reply goes on when it is back"


def reply_events(
    leader: Leader, order: inference_pb2.GenerateRequest, tell: Callable[[str], None]
) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
    """Every event up to Done, none twice and none left out. Ends within the configured deadline.

    order: names its request. tell: is handed words when the leader was lost. Raises SwarmError; at once when the
    leader never answered.
    """
    return lasting_events(_Calls(leader, tell), order, leader.config.reply_timeout_s, RESUME_S)


class _Calls:
    """Implements ReplyCaller for a person who waits."""

    def __init__(self, leader: Leader, tell: Callable[[str], None]) -> None:
        self._leader = leader
        self._tell = tell

    def events(self, ask: Ask, timeout_s: float) -> AsyncGenerator[inference_pb2.GenerateEvent, None]:
        inference = self._leader.inference
        is_whole = isinstance(ask, inference_pb2.GenerateRequest)
        return self._leader.follow(inference.Generate if is_whole else inference.Resume, ask, timeout_s)

    def is_lost(self, error: SwarmError, is_heard: bool) -> bool:
        """A leader that stops says UNAVAILABLE itself."""
        return is_heard and (isinstance(error, LeaderUnreachable) or error.why is Reason.UNAVAILABLE)

    def is_too_old(self, error: SwarmError) -> bool:
        return False  # its own words tell what is wrong

    def tell_lost(self, sequence: int) -> None:
        self._tell(AWAY)

    def cut_short(self) -> SwarmError:
        return SwarmError("the reply ended without its last event; see the leader's log")
