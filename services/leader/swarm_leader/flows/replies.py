"""Replies in flight, between the fellow that makes them and the caller that reads them. Every reply has one end."""

import asyncio
import contextlib
from collections import deque

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import Cancelled, FellowLost, ModelNotReady, Overloaded, StageFailed, SwarmError

from swarm_leader.flows.link import Link

InferenceLink = Link[link_pb2.ServeResponse]
LAST_EVENTS = ("done", "failed")


class Reply:
    """One reply: a bounded queue of events and at most one failure. Read by one caller."""

    def __init__(self, request: link_pb2.ReplyRequest, link: InferenceLink, events_max: int) -> None:
        self.request_id = request.request_id
        self.placement_id = request.placement_id
        self.link = link
        self._events_max = events_max
        self._events: deque[GenerationEvent] = deque()
        self._sequence = 0
        self._failure: SwarmError | None = None
        self._is_complete = False
        self._wake = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Nothing more comes from the fellow, or nothing more is wanted."""
        return self._is_complete or self._failure is not None

    def take(self, event: GenerationEvent) -> None:
        """An event came. Repeats are dropped; a gap, or a reader that is too far behind, fails the reply."""
        if not event.sequence and event.HasField("queued"):
            self._take_queued(event)
            return
        if self.is_over or event.sequence <= self._sequence:
            return
        if event.sequence != self._sequence + 1:
            self.fail(
                StageFailed(
                    f"events {self._sequence + 1}..{event.sequence - 1} of the reply never came",
                    fellow=self.link.fellow_name,
                )
            )
            return
        if len(self._events) >= self._events_max:
            self.fail(
                Overloaded(
                    f"the reader is {len(self._events)} events behind, which is as many as are kept",
                    events=len(self._events),
                )
            )
            return
        self._sequence = event.sequence
        self._is_complete = event.WhichOneof("event") in LAST_EVENTS
        self._events.append(event)
        self._wake.set()

    def _take_queued(self, event: GenerationEvent) -> None:
        """How it stands before its start. Only the newest is kept: an older one is out of date."""
        if self.is_over or self._sequence:
            return
        self._events.clear()
        self._events.append(event)
        self._wake.set()

    def fail(self, why: SwarmError) -> None:
        """End it, and end it on every stage. The first end stands."""
        if self.is_over:
            return
        self._failure = why
        self._events.clear()
        self._wake.set()
        if self.link.ended is None:
            cancel = link_pb2.CancelReply(request_id=self.request_id)
            try:
                self.link.send(link_pb2.ServeResponse(cancel=cancel))
            except FellowLost:
                return  # the link just ended, and with it every reply on it

    def abandon(self) -> None:
        """Nobody wants it any more."""
        self.fail(Cancelled("the caller went away"))

    async def next(self) -> GenerationEvent:
        """The next event. The caller has the deadline. Raises what failed the reply."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._events:
                return self._events.popleft()
            self._wake.clear()
            await self._wake.wait()


class Replies:
    """Every reply in flight, and the inference link of each fellow."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._replies: dict[str, Reply] = {}
        self._links: dict[str, InferenceLink] = {}
        self._attached = asyncio.Condition()
        self._emptied = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """No reply runs."""
        return not self._replies

    async def attach(self, link: InferenceLink) -> None:
        """A fellow opened its inference link; an older one of it ends."""
        older = self._links.get(link.fellow_id)
        self._links[link.fellow_id] = link
        if older is not None:
            older.end(FellowLost(f"fellow {link.fellow_name} opened a newer inference link", fellow=link.fellow_name))
        link.when_ended(lambda why: self._link_ended(link, why))
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

    def open(self, link: InferenceLink, request: link_pb2.ReplyRequest) -> Reply:
        """Send a request down a link. The request id must be unique among those that run. Raises FellowLost."""
        assert request.request_id not in self._replies
        reply = Reply(request, link, self._events_max)
        link.send(link_pb2.ServeResponse(request=request))
        self._replies[request.request_id] = reply
        return reply

    def close(self, reply: Reply) -> None:
        """The caller is done with it; a reply that still runs is cancelled on every stage."""
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
        """The leader stops."""
        for link in list(self._links.values()):
            link.end(why)

    def _link_ended(self, link: InferenceLink, why: SwarmError) -> None:
        if self._links.get(link.fellow_id) is link:
            del self._links[link.fellow_id]
        for reply in list(self._replies.values()):
            if reply.link is link:
                reply.fail(
                    FellowLost(
                        f"fellow {link.fellow_name} was lost during the reply: {why.message}", fellow=link.fellow_name
                    )
                )
