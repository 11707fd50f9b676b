"""One reply in flight, between the fellow that makes it and the caller that reads it. It has one end."""

import asyncio
from collections import deque

from silentswarm.core.v1.generation_pb2 import GenerationEvent
from silentswarm.fellow.v1 import inference_link_pb2 as link_pb2
from swarm_core.errors import Cancelled, FellowLost, Overloaded, StageFailed, SwarmError

from swarm_leader.flows.link import Link

InferenceLink = Link[link_pb2.ServeResponse]
LAST_EVENTS = ("done", "failed")


class Reply:
    """One reply: a bounded queue of events and at most one failure. Read by one caller.

    after_sequence: its caller has the events up to this one. It is adrift while its fellow's link is gone and may come
    back with the reply going on.
    """

    def __init__(
        self, request: link_pb2.ReplyRequest, link: InferenceLink, events_max: int, after_sequence: int = 0
    ) -> None:
        self.request_id = request.request_id
        self.placement_id = request.placement_id
        self.epoch = request.epoch
        self.is_kept = request.keep_ms > 0
        self.link = link
        self._events_max = events_max
        self._events: deque[GenerationEvent] = deque()
        self._after_sequence = after_sequence
        self._sequence = after_sequence
        self._failure: SwarmError | None = None
        self._is_complete = False
        self.is_adrift = False
        self._wake = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Nothing more comes from the fellow, or nothing more is wanted."""
        return self._is_complete or self._failure is not None

    @property
    def sequence(self) -> int:
        """Of the last event that came."""
        return self._sequence

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
        """How it stands before it goes on. Only the newest is kept: an older one is out of date."""
        if self.is_over or self._sequence > self._after_sequence:
            return
        self._events.clear()
        self._events.append(event)
        self._wake.set()

    def drift(self, why: str) -> None:
        """Its fellow's link broke. What has come is still read."""
        self.is_adrift = True
        if not self.is_over:
            queued = GenerationEvent.Queued(position=1, reason=why)
            self._events.append(GenerationEvent(queued=queued))
            self._wake.set()

    def rejoin(self, link: InferenceLink) -> None:
        """Its fellow is back and kept it. Raises FellowLost when the link is over again."""
        self.is_adrift = False
        self.link = link
        resume = link_pb2.ResumeReply(request_id=self.request_id, after_sequence=self._sequence)
        link.send(link_pb2.ServeResponse(resume=resume))

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
