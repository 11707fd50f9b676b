"""A scripted fellow that also holds covers, as the real one answers for them."""

import asyncio
from typing import Any

from silentswarm.core.v1 import capabilities_pb2, reason_pb2
from silentswarm.fellow.v1 import fellow_link_pb2

from tests.integration.leader.scripted_fellow import ScriptedFellow, declare

HOT, WARM = fellow_link_pb2.COVER_KIND_HOT, fellow_link_pb2.COVER_KIND_WARM
Key = tuple[str, int]


class CoveringFellow(ScriptedFellow):
    """covers: what it holds. cover_failure: why it holds none. may_cover: cleared, making one takes as long."""

    def __init__(self, name: str, free_bytes: int = 4 * 10**9, pool: str = "", **declared: Any) -> None:
        able = {
            "cover": capabilities_pb2.Cover(),
            "check": capabilities_pb2.Check(),
            "serve_keep": capabilities_pb2.ServeKeep(),
        }
        super().__init__(name, free_bytes, declare(**able, **declared))
        self.covers: dict[Key, fellow_link_pb2.HeldCover] = {}
        self.cover_failure = ""
        self.may_cover = asyncio.Event()
        self.may_cover.set()
        self.cover_bytes = 10**6
        self.pool = pool
        self._called_off: set[Key] = set()

    def kinds_of(self) -> dict[int, int]:
        """How each stage is covered here."""
        return {key[1]: cover.kind for key, cover in self.covers.items()}

    def _register(self) -> fellow_link_pb2.Register:
        register = super()._register()
        register.covers.extend(self.covers.values())
        register.pool = self.pool
        return register

    def beat(self) -> None:
        stages = [held.status for held in self.held.values()]
        beat = fellow_link_pb2.Heartbeat(
            sequence=next(self._sequences), devices=self._devices(), stages=stages, covers=self.covers.values()
        )
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(heartbeat=beat))

    async def _obey(self, signal: fellow_link_pb2.Signal) -> None:
        kind = signal.WhichOneof("kind")
        if kind == "cover":
            result = await self._cover(signal.cover)
        elif kind == "uncover":
            result = self._uncover((signal.uncover.placement_id, signal.uncover.stage_index))
        else:
            if kind == "wire" and signal.wire.placement_id not in self.held:
                self._switch_in(signal.wire)
            if kind == "unload":
                self.covers = {key: one for key, one in self.covers.items() if key[0] != signal.unload.placement_id}
            await super()._obey(signal)
            return
        result.signal_id = signal.signal_id
        self._up.put_nowait(fellow_link_pb2.ConnectRequest(result=result))

    async def _cover(self, asked: fellow_link_pb2.CoverSignal) -> fellow_link_pb2.SignalResult:
        key = (asked.spec.placement_id, asked.spec.stage_index)
        await self.may_cover.wait()
        result = fellow_link_pb2.SignalResult()
        if self.cover_failure or key in self._called_off:
            reason = reason_pb2.REASON_LOAD_FAILED if self.cover_failure else reason_pb2.REASON_CANCELLED
            result.failure.reason, result.failure.message = reason, self.cover_failure or "ended"
            self._called_off.discard(key)
            return result
        is_hot = asked.kind == HOT
        cover = fellow_link_pb2.HeldCover(
            spec=asked.spec,
            kind=asked.kind,
            ring_addresses=[f"10.0.0.9:{4000 + key[1]}"] if is_hot and asked.listen else [],
            weight_bytes=self.cover_bytes if is_hot else 0,
            memory_bytes=self.cover_bytes if is_hot else 0,
            kv_tokens_measured=self.kv_tokens_measured if is_hot else 0,
        )
        self.covers[key] = cover
        result.cover.cover.CopyFrom(cover)
        return result

    def _uncover(self, key: Key) -> fellow_link_pb2.SignalResult:
        if self.covers.pop(key, None) is None:
            self._called_off.add(key)
        self.may_cover.set()
        result = fellow_link_pb2.SignalResult()
        result.acknowledged.SetInParent()
        return result

    def _switch_in(self, wire: fellow_link_pb2.WireSignal) -> None:
        cover = self.covers.pop((wire.placement_id, wire.stage_index))
        held = fellow_link_pb2.HeldStage(ring_addresses=cover.ring_addresses)
        held.status.spec.CopyFrom(cover.spec)
        self.held[wire.placement_id] = held
