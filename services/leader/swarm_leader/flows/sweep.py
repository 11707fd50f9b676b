"""The one loop that looks for what nobody reports: leases that ran out, and who came that can help. Heals nothing."""

import asyncio

import structlog
from swarm_core.errors import FellowLost

from swarm_leader.flows.draining import Draining
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.healing import Healing
from swarm_leader.flows.registry import Registry

log = structlog.get_logger()
SWEEP_S = 0.5


def sweep_once(registry: Registry, faults: Faults) -> list[str]:
    """Judge every lease now. Returns the fellows found lost."""
    lost = registry.leases.take_lost()
    for fellow_id in lost:
        fellow = registry.get(fellow_id)
        log.warning("fellow lost", fellow=registry.name_of(fellow_id))
        faults.take_lost(fellow_id)
        if fellow is not None:
            fellow.stages.clear()
            if fellow.link is not None:
                # An open link that carries nothing is half dead; the fellow dials again if it lives.
                fellow.link.end(FellowLost(f"no heartbeat for {registry.leases.lease_s:g} s", fellow=fellow.name))
    return lost


async def sweep_forever(registry: Registry, faults: Faults, healing: Healing, draining: Draining) -> None:
    """Until cancelled."""
    while True:
        sweep_once(registry, faults)
        healing.sweep()
        draining.sweep()
        await asyncio.sleep(min(SWEEP_S, registry.leases.lease_s / 8))
