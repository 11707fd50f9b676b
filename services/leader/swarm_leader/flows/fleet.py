"""What a person does to a fellow: ping, release, purge, update, delete. Loads and moves nothing."""

import contextlib
from dataclasses import replace

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import CapabilityMissing, FellowLost, SwarmError, Unauthenticated

from swarm_leader.domain.access import NO_CREDENTIAL
from swarm_leader.domain.ports import FellowStore
from swarm_leader.flows.calls import OpenCalls
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.signals import Signals

PING_TIMEOUT_S = 5.0


class Fleet:
    """Acts on single fellows. Ids may be names."""

    def __init__(
        self,
        registry: Registry,
        store: FellowStore,
        signals: Signals,
        faults: Faults,
        clock: Clock,
        unload_timeout_s: float,
        calls: OpenCalls,
    ) -> None:
        self._registry = registry
        self._store = store
        self._signals = signals
        self._faults = faults
        self._clock = clock
        self._unload_timeout_s = unload_timeout_s
        self._calls = calls

    async def ping(self, id_or_name: str) -> float:
        """There and back, in ms.

        Raises FellowNotFound, CapabilityMissing (then nothing was sent), FellowLost, DeadlinePassed.
        """
        fellow = self._registry.find(id_or_name)
        if not fellow.capabilities.ping:
            raise CapabilityMissing(
                f"fellow {fellow.name} lacks ping: it is never sent one", fellow=fellow.name, capability="ping"
            )
        begun_s = self._clock.monotonic_s()
        link = self._registry.link_of(fellow.fellow_id)
        await self._signals.send(link, link_pb2.Signal(ping=link_pb2.PingSignal()), PING_TIMEOUT_S)
        return (self._clock.monotonic_s() - begun_s) * 1000

    async def release(self, id_or_name: str) -> None:
        """End every stage of a fellow; the models it held a stage of fail.

        Raises FellowNotFound, FellowLost, DeadlinePassed.
        """
        await self._end_stages(id_or_name, "released", link_pb2.Signal(stop=link_pb2.StopSignal()))

    async def purge(self, id_or_name: str) -> None:
        """End every stage of a fellow and have it empty its model cache.

        Raises CapabilityMissing (then nothing was sent), and what release raises.
        """
        self._check_maintained(id_or_name)
        await self._end_stages(id_or_name, "purged", link_pb2.Signal(purge=link_pb2.PurgeSignal()))

    async def update(self, id_or_name: str) -> None:
        """End every stage of a fellow and have it start its program anew; it says so before it does.

        Raises as purge does.
        """
        self._check_maintained(id_or_name)
        await self._end_stages(id_or_name, "updated", link_pb2.Signal(update=link_pb2.UpdateSignal()))

    def _check_maintained(self, id_or_name: str) -> None:
        fellow = self._registry.find(id_or_name)
        if not fellow.declared.HasField("maintenance"):
            raise CapabilityMissing(
                f"fellow {fellow.name} lacks maintenance: it is never sent PURGE or UPDATE",
                fellow=fellow.name,
                capability="maintenance",
            )

    async def _end_stages(self, id_or_name: str, done: str, signal: link_pb2.Signal) -> None:
        """Tell whoever uses its stages, send the signal that ends them, and count their memory as free."""
        fellow = self._registry.find(id_or_name)
        self._faults.take_leave(fellow, f"fellow {fellow.name} was {done} on request")
        link = self._registry.link_of(fellow.fellow_id)
        await self._signals.send(link, signal, self._unload_timeout_s)
        for placement_id in list(fellow.stages):
            fellow.drop_stage(placement_id)

    async def delete(self, id_or_name: str) -> None:
        """Forget a fellow: end its stages, its link and its credential. Others are to hold what it held.

        It may join again. Raises FellowNotFound.
        """
        going = self._registry.find(id_or_name)
        kept, going.record = going.record, replace(going.record, draining=True)  # nothing is brought to it any more
        try:
            self._faults.take_deleted(going)
            with contextlib.suppress(SwarmError):  # gone, or silent: it ends what it holds when it registers again
                link = self._registry.link_of(going.fellow_id)
                await self._signals.send(link, link_pb2.Signal(stop=link_pb2.StopSignal()), self._unload_timeout_s)
            async with self._registry.changing_records:
                fellow = self._registry.find(going.fellow_id)  # it may have registered anew meanwhile
                nobody = {"credential_sha256": "", "credential_confirmed": False, "joined_by": ""}
                record = replace(fellow.record, draining=kept.draining, deleted=True, **nobody)
                await self._store.save(record)
                self._registry.forget(fellow.fellow_id)
        except BaseException:
            going.record = kept
            raise
        self._calls.end_all(fellow.fellow_id, Unauthenticated(NO_CREDENTIAL))
        if fellow.link is not None:
            fellow.link.end(FellowLost(f"fellow {fellow.name} was deleted", fellow=fellow.name))
        self._faults.take_deleted(fellow)
