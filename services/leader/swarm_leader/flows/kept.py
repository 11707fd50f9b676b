"""Replies that fellows keep going and nobody here follows: after a restart, until somebody resumes them. Bounded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2

KEPT_MAX = 1024  # as many as the fellows of a large pool run


@dataclass(frozen=True)
class Kept:
    """One, and whose link named it. until_s: its fellow gives it up then, on the loop's clock."""

    reply: link_pb2.KeptReply
    fellow_id: str
    until_s: float


class KeptReplies:
    """Every kept reply that was named and not resumed. now_s: a clock that only grows."""

    def __init__(self, keep_s: float, now_s: Callable[[], float]) -> None:
        self._keep_s = keep_s
        self._now_s = now_s
        self._kept: dict[str, Kept] = {}
        self._news = asyncio.Event()

    def remember(self, fellow_id: str, replies: Iterable[link_pb2.KeptReply]) -> None:
        """A fellow named these; what it named before is out of date."""
        self.forget(fellow_id)
        until_s = self._now_s() + self._keep_s
        for reply in replies:
            # A reply is its first fellow's. A request id is no secret among the fellows of a ring.
            self._kept.setdefault(reply.request_id, Kept(reply, fellow_id, until_s))
        self._drop_surplus()
        news, self._news = self._news, asyncio.Event()
        news.set()

    def forget(self, fellow_id: str) -> None:
        """The fellow's link is over; it names them again with the next."""
        for request_id, kept in list(self._kept.items()):
            if kept.fellow_id == fellow_id:
                del self._kept[request_id]

    def _drop_surplus(self) -> None:
        """What is too much is dropped of whoever named the most: nobody pushes out the replies of others."""
        surplus = len(self._kept) - KEPT_MAX
        if surplus <= 0:
            return
        counts = Counter(kept.fellow_id for kept in self._kept.values())
        for _ in range(surplus):
            counts[max(counts, key=counts.__getitem__)] -= 1
        for request_id, kept in list(self._kept.items()):
            if counts[kept.fellow_id] > 0:
                counts[kept.fellow_id] -= 1
            else:
                del self._kept[request_id]

    def find(self, request_id: str) -> Kept | None:
        """A reply, unless its time is over."""
        kept = self._kept.get(request_id)
        if kept is not None and kept.until_s <= self._now_s():
            del self._kept[request_id]
            return None
        return kept

    def take(self, request_id: str) -> None:
        """Somebody follows it now, or it is made anew."""
        self._kept.pop(request_id, None)

    async def wait(self, request_id: str, wait_s: float, may_come: Callable[[], bool]) -> Kept | None:
        """A reply; waits for its fellow to name it, while one may come that does. may_come is asked at every news."""
        try:
            async with asyncio.timeout(wait_s):
                while (kept := self.find(request_id)) is None and may_come():
                    await self._news.wait()
                return kept
        except TimeoutError:
            return None
