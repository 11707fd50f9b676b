"""This stage's two links in the current epoch: makes them, moves batches and beats, and tells when one breaks."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import Clock, SystemClock
from swarm_core.errors import BadRequest, LinkBroken, PermissionDenied, StaleEpoch, SwarmError, Unauthenticated
from swarm_rpc.tls import Trust

from swarm_stage.engine.engine import Arrived, BeginEpoch, RingBroke
from swarm_stage.engine.inbox import Inbox
from swarm_stage.ring.beats import Beats, Hearing, Pace, RoundTrips
from swarm_stage.ring.certificates import Certificates
from swarm_stage.ring.direct import dial_next
from swarm_stage.ring.link import LinkKeys, Outgoing, RingPlace
from swarm_stage.ring.outbox import Outbox
from swarm_stage.ring.proof import hello_proof, is_equal, welcome_proof
from swarm_stage.ring.relayed import BUNDLE_BYTES_MAX, LaneEnd, attach_receiver, attach_sender

log = structlog.get_logger()
BUNDLE_MAX = 32  # batches handed to a link at once
OUTBOX_MAX = 1024  # batches; each session has at most one per stage in the ring, so this is never reached in health


@dataclass(frozen=True)
class WireOrder:
    """An epoch to join, as the leader decided it."""

    epoch: int
    route: stage_pb2.Route
    previous_route: stage_pb2.Route
    next_addresses: tuple[str, ...]
    relay_address: str
    timeout_s: float
    kv_tokens: int | None = None  # what the tightest stage of the ring holds; None: as loaded
    keys: LinkKeys | None = None  # None: neighbours prove nothing
    relay_trust: Trust | None = None  # None: the relay is reached without TLS
    keep_sessions: bool = False  # for a while, for replies that go on
    fresh_stages: frozenset[int] = frozenset()  # they hold nothing of an older epoch


@dataclass
class _Epoch:
    """What belongs to one epoch and ends with it. from_previous and from_next: how they keep their promises."""

    order: WireOrder
    from_previous: Hearing
    from_next: Hearing
    outbox: Outbox = field(default_factory=lambda: Outbox(OUTBOX_MAX))
    outgoing: Outgoing | None = None
    receiver: LaneEnd | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    is_broken: bool = False
    has_direct_incoming: bool = False
    has_received: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    beats: Beats = field(default_factory=Beats)
    round_trips: RoundTrips = field(default_factory=RoundTrips)
    heard_sequence: int = 0  # of the previous stage's last beat
    answer_due: asyncio.Event = field(default_factory=asyncio.Event)


class Wiring:
    """Joins epochs. on_broken(epoch, why, peer) is called once when a link of the current epoch breaks;
    peer is the stage at its other end, None when the fault is this stage's own.

    When one link breaks the other is closed too, so that the break runs round the ring and every stage drops its
    sessions, however far it is from the fault.
    """

    def __init__(
        self,
        place: RingPlace,
        inbox: Inbox,
        on_broken: Callable[[int, str, int | None], None],
        clock: Clock | None = None,
        certificates: Certificates | None = None,
        pace: Pace | None = None,
    ) -> None:
        """clock: the engine's; arrivals are stamped with it. certificates: of this machine, for encrypted links.

        pace: of beats; None is the usual one.
        """
        self.place = place
        self._inbox = inbox
        self._clock = clock or SystemClock()
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._current: _Epoch | None = None
        self._joining = asyncio.Lock()
        self._certificates = certificates
        self._pace = pace or Pace()
        self.links_refused = 0  # hellos of whoever is not the previous stage

    @property
    def epoch(self) -> int:
        """The epoch joined last; 0 before the first."""
        return self._current.order.epoch if self._current else 0

    @property
    def route(self) -> stage_pb2.Route:
        """How the next stage is reached."""
        return self._current.order.route if self._current else stage_pb2.ROUTE_UNSPECIFIED

    @property
    def link_round_trip_ms(self) -> float | None:
        """There and back to the next stage, median of the last beats. None: not measured, as ever by the relay."""
        return self._current.round_trips.median_ms if self._current else None

    async def join(self, order: WireOrder) -> str:
        """Leave the older epoch and join this one; returns the address that answered ("" in a ring of one).

        Joining the same epoch again the same way does nothing. Raises StaleEpoch for an older epoch, LinkBroken when
        the next stage, or the relay, cannot be reached.
        """
        async with self._joining:
            if order.epoch < self.epoch:
                raise StaleEpoch(f"this stage is at epoch {self.epoch}; {order.epoch} is over", epoch=self.epoch)
            current = self._current
            if current and current.order == order and not current.is_broken:
                return current.outgoing.address if current.outgoing else ""
            if current and current.order.epoch == order.epoch:
                raise StaleEpoch(f"epoch {order.epoch} was joined already; a new wiring needs a new epoch")
            await self._leave(f"the ring moved on to epoch {order.epoch}")
            self._current = fresh = _Epoch(order, Hearing(self._pace), Hearing(self._pace))
            over = LinkBroken("the ring was wired anew; try again soon")
            self._inbox.put_now(BeginEpoch(order.epoch, over, order.kv_tokens, order.keep_sessions, order.fresh_stages))
            if self.place.stage_count == 1:
                return ""
            try:
                async with asyncio.timeout(order.timeout_s):
                    return await self._connect(fresh)
            except TimeoutError:
                self._break(fresh, f"the links were not up within {order.timeout_s:g} s")
                raise LinkBroken(f"the links were not up within {order.timeout_s:g} s") from None
            except BaseException as error:  # also when the fellow gave up waiting: a half-wired epoch must not stay
                self._break(fresh, error.message if isinstance(error, SwarmError) else "wiring was given up")
                raise

    async def close(self) -> None:
        """Leave the ring for good."""
        await self._leave("this stage is stopping")

    def send_from_engine(self, batch: ring_pb2.FrameBatch) -> None:
        """Hand a batch to the link; called from the engine thread, never blocks."""
        self._loop.call_soon_threadsafe(self._enqueue, batch)

    def accept(self, hello: ring_pb2.Hello, names: Sequence[str]) -> bytes:
        """A previous stage says hello directly; returns the proof to welcome it with.

        Raises StaleEpoch unless this epoch awaits just that, Unauthenticated or PermissionDenied when it is not the
        previous stage. Whatever is refused changes nothing.
        """
        current, epoch = self._current, hello.epoch
        if current is not None and epoch == current.order.epoch:
            self._check_proof(current.order.keys, hello, names)
        if current is None or epoch != current.order.epoch or current.is_broken or current.has_direct_incoming:
            raise StaleEpoch(
                f"this stage is at epoch {self.epoch} and takes no link of epoch {epoch}", epoch=self.epoch
            )
        if current.order.previous_route != stage_pb2.ROUTE_DIRECT:
            raise BadRequest("this ring reaches this stage through the relay", field="route")
        current.has_direct_incoming = True
        keys = current.order.keys
        return welcome_proof(keys.previous_secret, hello.proof) if keys else b""

    async def deliver(self, epoch: int, batch: ring_pb2.FrameBatch) -> None:
        """Give an arrived batch to the engine; waits while its inbox is full. Other epochs have no effect.

        One without frames is a sign of life, and no matter of the engine's: an idle stage stays idle.
        """
        current = self._current
        if current is None or epoch != current.order.epoch or current.is_broken:
            return
        current.has_received = True
        arrived_s = self._clock.monotonic_s()
        if batch.HasField("beat"):
            current.from_previous.hear(arrived_s, batch.beat)
            current.heard_sequence = batch.beat.sequence
            current.answer_due.set()
        else:
            current.from_previous.hear(arrived_s)
        if not batch.frames:
            return
        current.from_previous.stop_listening()  # until this is taken, nothing behind it is read
        try:
            await self._inbox.put(Arrived(batch, arrived_s))
        finally:
            current.from_previous.listen_again(self._clock.monotonic_s())

    async def next_answer(self, epoch: int) -> ring_pb2.Beat:
        """What to tell the previous stage next, once it is due: at once after a beat of its own, then every interval.

        Never returns for a stage that sends no beats, or for another epoch.
        """
        current = self._current
        if current is None or epoch != current.order.epoch:
            await asyncio.Event().wait()
        assert current
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.interval_s if current.from_previous.has_beat else None):
                await current.answer_due.wait()
        current.answer_due.clear()
        return ring_pb2.Beat(sequence=current.heard_sequence, interval_ms=round(self._pace.interval_s * 1000))

    async def wait_over(self, epoch: int) -> None:
        """Return when an epoch is broken or left, so that its direct link is closed from this side too."""
        if self._current and epoch == self._current.order.epoch:
            await self._current.over.wait()

    def incoming_ended(self, epoch: int, why: str) -> None:
        """The previous stage's direct link is gone. Before its first batch it may come again: its hello was slow."""
        current = self._current
        if current is None or epoch != current.order.epoch:
            return
        if current.has_received:
            self._break(current, why, self.place.previous_stage)
        current.has_direct_incoming = False

    def _check_proof(self, keys: LinkKeys | None, hello: ring_pb2.Hello, names: Sequence[str]) -> None:
        """Raises Unauthenticated (no proof), PermissionDenied (a wrong one, or the certificate of another)."""
        if keys is None:
            return
        refusal: SwarmError | None = None
        if not hello.proof:
            refusal = Unauthenticated("this link asks for a proof, and the hello has none")
        elif not is_equal(hello.proof, hello_proof(keys.previous_secret, hello)):
            refusal = PermissionDenied("the hello's proof is not made with this link's secret")
        elif keys.previous_name and keys.previous_name not in names:
            shown = ", ".join(names) or "none"
            refusal = PermissionDenied(f"the previous stage is {keys.previous_name}, the certificate's name is {shown}")
        if refusal is not None:
            self.links_refused += 1
            log.warning("a link was refused", stage=self.place.stage_index, epoch=hello.epoch, why=refusal.message)
            raise refusal

    async def _connect(self, fresh: _Epoch) -> str:
        """Make both links of an epoch; returns the next stage's address. Raises LinkBroken or BadRequest."""
        order, keys = fresh.order, fresh.order.keys
        trust = self._trust_next(keys)
        if order.previous_route == stage_pb2.ROUTE_RELAY:
            fresh.receiver = await attach_receiver(
                self.place, order.epoch, order.relay_address, keys.receiver_ticket if keys else b"", order.relay_trust
            )
            self._start(fresh, self._receive(fresh, fresh.receiver))
        self._start(fresh, self._listen(fresh))
        if order.route == stage_pb2.ROUTE_RELAY:
            fresh.outgoing = await attach_sender(
                self.place, order.epoch, order.relay_address, keys.sender_ticket if keys else b"", order.relay_trust
            )
        elif order.route == stage_pb2.ROUTE_DIRECT:
            fresh.outgoing = await dial_next(
                self.place, order.epoch, order.next_addresses, order.timeout_s, keys, trust
            )
        else:
            raise BadRequest("a ring of several stages needs the route DIRECT or RELAY", field="route")
        if fresh.is_broken:  # the receiver's lane ended while the next stage was dialled
            await fresh.outgoing.close()
            raise LinkBroken("the link from the previous stage broke while the next one was dialled")
        self._start(fresh, self._send_all(fresh, fresh.outgoing))
        self._start(fresh, self._watch(fresh, fresh.outgoing))
        return fresh.outgoing.address

    def _trust_next(self, keys: LinkKeys | None) -> Trust | None:
        """What the next stage's certificate must be. Raises LinkBroken when this stage was loaded without its own."""
        if keys is None or not keys.next_name:
            return None
        if self._certificates is None:
            raise LinkBroken("links of this ring are encrypted, and this stage was loaded without a certificate")
        return self._certificates.trust(keys.next_name)

    def _start(self, epoch: _Epoch, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        epoch.tasks.add(task)
        task.add_done_callback(epoch.tasks.discard)

    def _enqueue(self, batch: ring_pb2.FrameBatch) -> None:
        current = self._current
        if current is None or batch.epoch != current.order.epoch or current.is_broken:
            return
        if not current.outbox.put(batch):
            self._break(current, f"{OUTBOX_MAX} batches wait for the next stage")

    async def _send_all(self, epoch: _Epoch, outgoing: Outgoing) -> None:
        """Send what comes, and a beat first, before what takes its time on a slow line, and when nothing comes.

        A beat is made when it leaves: while the way is full none is, so none is late news.
        """
        try:
            await self._send_beat(epoch, outgoing)
            while True:
                batches = await self._next_batches(epoch)
                promise_s = self._pace.promise_s(sum(batch.ByteSize() for batch in batches))
                if not batches:
                    await self._send_beat(epoch, outgoing)
                    continue
                if promise_s > self._pace.interval_s:
                    await self._send_beat(epoch, outgoing, promise_s)
                await outgoing.send(batches)
        except LinkBroken as error:
            self._break(epoch, error.message, self.place.next_stage)

    async def _next_batches(self, epoch: _Epoch) -> list[ring_pb2.FrameBatch]:
        """What is to be sent; nothing when nothing came for an interval."""
        try:
            async with asyncio.timeout(self._pace.interval_s):
                return await epoch.outbox.take(BUNDLE_MAX, BUNDLE_BYTES_MAX)
        except TimeoutError:
            return []

    async def _send_beat(self, epoch: _Epoch, outgoing: Outgoing, promise_s: float = 0.0) -> None:
        beat = epoch.beats.next(promise_s or self._pace.interval_s)
        if not promise_s:  # on a busy line the answer would tell of what is queued in front, not of the way
            epoch.round_trips.sent(beat.sequence, self._clock.monotonic_s())
        await outgoing.send([ring_pb2.FrameBatch(epoch=epoch.order.epoch, beat=beat)])

    async def _watch(self, epoch: _Epoch, outgoing: Outgoing) -> None:
        def take(beat: ring_pb2.Beat) -> None:
            now_s = self._clock.monotonic_s()
            epoch.from_next.hear(now_s, beat)
            epoch.round_trips.answered(beat.sequence, now_s)

        self._break(epoch, await outgoing.wait_broken(take), self.place.next_stage)

    async def _listen(self, epoch: _Epoch) -> None:
        """Break the epoch when a neighbour that promised signs of life gives none."""
        neighbours = ((self.place.previous_stage, epoch.from_previous), (self.place.next_stage, epoch.from_next))
        while not epoch.is_broken:
            await asyncio.sleep(self._pace.check_s)
            for stage, hearing in neighbours:
                silent_s = hearing.silent_too_long_s(self._clock.monotonic_s())
                if silent_s is not None:
                    why = "its process, its machine or the way to it is frozen"
                    self._break(epoch, f"nothing from stage {stage} for {silent_s:.1f} s: {why}", stage)

    async def _receive(self, epoch: _Epoch, receiver: LaneEnd) -> None:
        async def take(batch: ring_pb2.FrameBatch) -> None:
            await self.deliver(epoch.order.epoch, batch)

        self._break(epoch, await receiver.read_all(take), self.place.previous_stage)

    def _break(self, epoch: _Epoch, why: str, peer_stage: int | None = None) -> None:
        """Say once that an epoch is broken, and let go of both its links. peer_stage: at the other end of the link."""
        if epoch.is_broken or epoch is not self._current:
            return
        epoch.is_broken = True
        epoch.over.set()
        log.warning("ring broke", epoch=epoch.order.epoch, stage=self.place.stage_index, why=why)
        broke = f"the ring broke at stage {self.place.stage_index} ({why}); it is wired anew, try again soon"
        self._inbox.put_now(RingBroke(LinkBroken(broke)))
        self._on_broken(epoch.order.epoch, why, peer_stage)
        closing = asyncio.ensure_future(_close(epoch))
        epoch.tasks.add(closing)

    async def _leave(self, why: str) -> None:
        current = self._current
        if current is None:
            return
        current.is_broken = True
        current.over.set()
        log.info("leaving ring epoch", epoch=current.order.epoch, stage=self.place.stage_index, why=why)
        await _close(current)


async def _close(epoch: _Epoch) -> None:
    """Close an epoch's links and end its tasks, but not the one that runs this."""
    for link in (epoch.outgoing, epoch.receiver):
        if link is not None:
            await link.close()
    for task in epoch.tasks - {asyncio.current_task()}:
        task.cancel()
