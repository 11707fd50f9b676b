"""Where replies wait for a place in a model's ring, in order of arrival. The counting is domain's."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from swarm_core.errors import SwarmError

from swarm_leader.domain.admission import AdmissionQueue


class Gate:
    """One model's gate."""

    def __init__(self, waiting_max: int) -> None:
        self._queue = AdmissionQueue(waiting_max)
        self._places: dict[str, asyncio.Future[None]] = {}

    @property
    def running(self) -> int:
        """Replies that run now."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """Replies that wait now."""
        return self._queue.waiting

    @asynccontextmanager
    async def entered(self, request_id: str, running_max: int) -> AsyncIterator[None]:
        """Hold a place while the block runs. The caller has the deadline.

        Raises Overloaded when too many wait, or what `turn_away` was told.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._places[request_id] = place
        try:
            self._open(self._queue.set_running_max(running_max))
            self._open(self._queue.ask(request_id))
            await place
            yield
        finally:
            del self._places[request_id]
            self._open(self._queue.release(request_id))

    def turn_away(self, why: SwarmError) -> None:
        """Whoever waits now hears why; those running go on."""
        for place in self._places.values():
            if not place.done():
                place.set_exception(why)
                place.exception()  # a caller that left at the same moment need not be warned about

    def _open(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            place = self._places.get(request_id)
            if place is not None and not place.done():
                place.set_result(None)


class Gates:
    """A gate for each model that was asked for a reply."""

    def __init__(self, waiting_max: int) -> None:
        self._gates: dict[str, Gate] = defaultdict(lambda: Gate(waiting_max))

    def of(self, model_id: str) -> Gate:
        """The model's gate."""
        return self._gates[model_id]
