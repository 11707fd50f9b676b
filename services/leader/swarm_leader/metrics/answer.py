"""Answers Prometheus while the process serves, and watches the event loop meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from prometheus_client import CollectorRegistry
from swarm_core.loop_lag import watch_loop_lag
from swarm_core.metrics_listener import MetricsListener

from swarm_leader.metrics.state import make_loop_lag

log = structlog.get_logger()


@asynccontextmanager
async def answering_metrics(listen: str, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Until the block is left; gives the port, 0 for none. listen: HOST:PORT, "" answers nobody. Raises BadRequest."""
    if not listen:
        yield 0
        return
    listener = MetricsListener(listen, registry)
    listener.start()
    log.info(f"metrics on http://{listener.address}/metrics")
    watching = asyncio.create_task(watch_loop_lag(make_loop_lag(registry).observe), name="loop lag")
    try:
        yield listener.port
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await asyncio.to_thread(listener.close)
