"""Says when a process that was started again answers again. Starts none itself."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from silentswarm.leader.v1 import status_pb2
from swarm_core.errors import SwarmError

from swarm_cli.leader import Leader
from swarm_cli.up.plan import GATEWAY, LEADER
from swarm_cli.up.ready import ASK_S, fellows_lack, gateway_lacks, until


class Returning:
    """Watches over processes that were started again. say: told of each that is back."""

    def __init__(self, leader: Leader, base_url: str, say: Callable[[str], None]) -> None:
        self._leader = leader
        self._base_url = base_url
        self._say = say
        self._watching: dict[str, asyncio.Task[None]] = {}

    def watch(self, name: str) -> None:
        """It was started just now. Returns at once; nothing is said of one that does not answer within a start."""
        self.forget(name)
        self._watching[name] = asyncio.create_task(self._watch(name))

    def forget(self, name: str) -> None:
        """It died again."""
        if (task := self._watching.pop(name, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Nobody is to hear of any of them."""
        for name in list(self._watching):
            self.forget(name)

    async def _watch(self, name: str) -> None:
        with suppress(SwarmError):  # the deadline: what is wrong with it is in its log
            await until(lambda: self._lacks(name), name)
            self._say(f"{name} is back")

    async def _lacks(self, name: str) -> str:
        """Why it does not answer yet; "" when it does."""
        if name == GATEWAY:
            return await gateway_lacks(self._base_url)
        try:
            if name == LEADER:
                answer = await self._leader.ask(self._leader.status.GetReady, status_pb2.GetReadyRequest(), ASK_S)
                return "" if answer.ready else "; ".join(answer.reasons) or "it does not say why"
            return await fellows_lack(self._leader, [name])
        except SwarmError as error:
            return error.message
