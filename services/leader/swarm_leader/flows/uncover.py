"""Ending covers: one, or all that are in the way of a load. Plans none."""

import asyncio

import structlog
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import SwarmError

from swarm_leader.domain.records import StageRecord
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.room import fits_beside_covers
from swarm_leader.flows.signals import Signals

log = structlog.get_logger()


async def uncover(registry: Registry, signals: Signals, fellow: Fellow, key: tuple[str, int], timeout_s: float) -> None:
    """Have a fellow end a cover; its memory is back when this returns. One that cannot says so in the log."""
    placement_id, stage_index = key
    signal = link_pb2.UncoverSignal(placement_id=placement_id, stage_index=stage_index)
    try:
        link = registry.link_of(fellow.fellow_id)
        await signals.send(link, link_pb2.Signal(uncover=signal), timeout_s)
    except SwarmError as error:
        log.warning("a cover could not be ended", fellow=fellow.name, placement=placement_id, why=error.message)
    else:
        fellow.covers.pop(key, None)


async def make_way(
    registry: Registry, signals: Signals, placement_id: str, stage: StageRecord, timeout_s: float
) -> None:
    """Before a LOAD: end the covers that are being made on its fellow, and the hot ones when their memory is needed.

    A cover of that very stage stays: the load takes it.
    """
    fellow = registry.get(stage.fellow_id)
    if fellow is None:
        return
    own = (placement_id, stage.stage_index)
    in_the_way = set(fellow.covers_made)
    if not fits_beside_covers(fellow, stage):
        in_the_way |= {key for key, cover in fellow.covers.items() if cover.is_hot and key != own}
    await asyncio.gather(*(uncover(registry, signals, fellow, key, timeout_s) for key in in_the_way))
