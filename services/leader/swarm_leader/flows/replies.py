"""Every reply in flight, and the inference link of each fellow. A link that breaks may come back with its replies."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import FellowLost, ModelNotReady, ReplyNotFound, SwarmError

from swarm_leader.flows.kept import Kept, KeptReplies
from swarm_leader.flows.reply import InferenceLink, Reply

__all__ = ["InferenceLink", "Replies", "Reply"]
ADRIFT_S = 10.0  # a fellow opens its inference link again within a second or two, if it can
LOOK_S = 0.25  # how soon it is noticed that waiting for a link became useless
LEFT_MAX = 1024


class Replies:
    """Every reply in flight. keep_s: how long fellows keep a reply whose link broke; 0 is not at all.

    may_return: whether a reply that is adrift may still go on where it was made. makes: whether a fellow makes the
    replies of a placement; what else it says it kept is not believed.
    """

    def __init__(
        self,
        events_max: int,
        keep_s: float = 0.0,
        may_return: Callable[[str, Reply], bool] = lambda _, reply: True,
        makes: Callable[[str, str], bool] = lambda _, placement_id: True,
    ) -> None:
        self.keep_s = keep_s
        self.is_stopping = False
        self._events_max = events_max
        self._may_return = may_return
        self._makes = makes
        self._replies: dict[str, Reply] = {}
        self._links: dict[str, InferenceLink] = {}
        self._kept = KeptReplies(keep_s, lambda: asyncio.get_running_loop().time())
        self._left: OrderedDict[str, None] = OrderedDict()  # ended here while their fellow was away
        self._drifting: set[asyncio.Task[None]] = set()
        self._attached = asyncio.Condition()
        self._emptied = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """No reply runs."""
        return not self._replies

    async def attach(self, link: InferenceLink, kept: Sequence[link_pb2.KeptReply] = ()) -> None:
        """A fellow opened its inference link; an older one of it ends. kept: replies that it kept going."""
        older = self._links.get(link.fellow_id)
        self._links[link.fellow_id] = link
        if older is not None:
            older.end(FellowLost(f"fellow {link.fellow_name} opened a newer inference link", fellow=link.fellow_name))
        link.when_ended(lambda why: self._link_ended(link, why))
        self._rejoin(link, kept)
        async with self._attached:
            self._attached.notify_all()

    async def link_of(self, fellow_id: str, fellow_name: str, wait_s: float) -> InferenceLink:
        """The fellow's link; waits for it a moment. Raises ModelNotReady naming the fellow."""
        try:
            async with asyncio.timeout(wait_s), self._attached:
                await self._attached.wait_for(lambda: fellow_id in self._links)
        except TimeoutError:
            raise ModelNotReady(
                f"fellow {fellow_name}, which holds the first stage, is not connected now", fellow=fellow_name
            ) from None
        return self._links[fellow_id]

    def open(self, link: InferenceLink, request: link_pb2.ReplyRequest, after_sequence: int = 0) -> Reply:
        """Send a request down a link. The request id must be unique among those that run. Raises FellowLost.

        after_sequence: the request goes on behind this event.
        """
        assert request.request_id not in self._replies
        self._kept.take(request.request_id)
        reply = Reply(request, link, self._events_max, after_sequence)
        link.send(link_pb2.ServeResponse(request=request))
        self._replies[request.request_id] = reply
        return reply

    def kept(self, request_id: str) -> Kept | None:
        """A reply that a fellow keeps and nobody follows."""
        return self._kept.find(request_id)

    async def wait_kept(self, request_id: str, wait_s: float, fellow_ids: Iterable[str]) -> Kept | None:
        """The same; waits while the link of one of these fellows is not back yet."""
        awaited = set(fellow_ids)
        return await self._kept.wait(request_id, wait_s, lambda: not awaited <= self._links.keys())

    def take_up(self, kept: Kept, after_sequence: int) -> Reply:
        """Follow a kept reply from an event on. Raises ReplyNotFound, FellowLost."""
        link, told = self._links.get(kept.fellow_id), kept.reply
        if link is None or told.request_id in self._replies:
            raise ReplyNotFound(f"reply {told.request_id} is not kept any more")
        self._kept.take(told.request_id)
        request = link_pb2.ReplyRequest(
            request_id=told.request_id,
            placement_id=told.placement_id,
            epoch=told.epoch,
            keep_ms=int(self.keep_s * 1000),
        )
        reply = Reply(request, link, self._events_max, after_sequence)
        reply.rejoin(link)
        self._replies[reply.request_id] = reply
        return reply

    def close(self, reply: Reply) -> None:
        """The caller is done with it; a reply that still runs is cancelled on every stage."""
        if reply.is_adrift:
            self._left[reply.request_id] = None
            while len(self._left) > LEFT_MAX:
                self._left.popitem(last=False)
        reply.abandon()
        self._replies.pop(reply.request_id, None)
        if not self._replies:
            self._emptied.set()

    def take_event(self, link: InferenceLink, request_id: str, event: GenerationEvent) -> None:
        """An event came up a link. One for no reply of this link is dropped."""
        reply = self._replies.get(request_id)
        if reply is not None and reply.link is link:
            reply.take(event)

    def fail_placement(self, placement_id: str, why: SwarmError) -> None:
        """Every reply of a placement is over."""
        for reply in list(self._replies.values()):
            if reply.placement_id == placement_id:
                reply.fail(why)

    async def wait_empty(self, wait_s: float) -> None:
        """Until no reply runs, for `wait_s` at most."""
        self._emptied.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s if self._replies else 0):
                await self._emptied.wait()

    def end_links(self, why: SwarmError) -> None:
        """The leader stops. Fellows keep what they were told to keep; here it is over."""
        self.is_stopping = True
        for link in list(self._links.values()):
            link.end(why)
        for task in self._drifting:
            task.cancel()

    def _rejoin(self, link: InferenceLink, kept: Sequence[link_pb2.KeptReply]) -> None:
        """Replies that waited for this fellow go on, or are over; what else it kept is remembered."""
        named = {one.request_id: one for one in kept}
        for reply in list(self._replies.values()):
            if not reply.is_adrift or reply.link.fellow_id != link.fellow_id:
                continue
            if reply.is_over:  # its reader left, or gave it up, and has not closed it yet: nobody wants the rest
                reply.is_adrift = False
                self._left[reply.request_id] = None
                continue
            told = named.pop(reply.request_id, None)
            same = told is not None and (told.placement_id, told.epoch) == (reply.placement_id, reply.epoch)
            if told is None or not same or told.first_sequence > reply.sequence + 1:
                name = link.fellow_name
                reply.fail(FellowLost(f"fellow {name} came back without the reply", fellow=name))
            else:
                try:
                    reply.rejoin(link)
                except FellowLost as gone:  # it ended just now
                    reply.fail(gone)
        for request_id in [request_id for request_id in named if request_id in self._left]:
            del named[request_id], self._left[request_id]
            with contextlib.suppress(FellowLost):
                link.send(link_pb2.ServeResponse(cancel=link_pb2.CancelReply(request_id=request_id)))
        own = [one for one in named.values() if self._makes(link.fellow_id, one.placement_id)]
        self._kept.remember(link.fellow_id, own)

    def _link_ended(self, link: InferenceLink, why: SwarmError) -> None:
        if self._links.get(link.fellow_id) is link:
            del self._links[link.fellow_id]
            self._kept.forget(link.fellow_id)
        name = link.fellow_name
        for reply in list(self._replies.values()):
            if reply.link is not link or reply.is_over:
                continue
            lost = FellowLost(f"fellow {name} was lost during the reply: {why.message}", fellow=name)
            if self.is_stopping:
                reply.fail(why)
            elif reply.is_kept:
                reply.drift(f"the link to fellow {name} broke; the reply goes on when it is back")
                task = asyncio.ensure_future(self._wait_back(reply, link, lost))
                self._drifting.add(task)
                task.add_done_callback(self._drifting.discard)
            else:
                reply.fail(lost)

    async def _wait_back(self, reply: Reply, link: InferenceLink, lost: FellowLost) -> None:
        """Give a reply up whose fellow does not come back in time, or for nothing."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ADRIFT_S
        while reply.is_adrift and reply.link is link and not reply.is_over:
            if loop.time() >= until_s or not self._may_return(link.fellow_id, reply):
                reply.fail(lost)
                return
            await asyncio.sleep(LOOK_S)
