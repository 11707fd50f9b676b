"""Sends the log of this fellow and its stages to the leader while there is one. Keeps nothing and repeats nothing."""

import asyncio

import grpc
import structlog
from silentswarm.fellow.v1 import logs_pb2
from silentswarm.fellow.v1.logs_pb2_grpc import FellowLogsStub

from swarm_fellow.host.log_tap import LogTap

log = structlog.get_logger()
BATCH_LINES = 100
EVERY_S = 0.5  # at most 200 lines a second leave this machine
AGAIN_S = 15.0


class LogPush:
    """One stream a connection. is_on: whether this fellow sends its logs."""

    def __init__(self, tap: LogTap, is_on: bool) -> None:
        self._tap = tap
        self._is_on = is_on

    async def run(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        """Until cancelled. A leader that takes no logs is asked again every 15 s, one that knows none never."""
        while self._is_on:
            try:
                await self._push(channel, metadata)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    break
                log.debug("logs cannot be sent", why=error.details())
            except asyncio.InvalidStateError:
                log.debug("logs cannot be sent", why="the call ended")
            await asyncio.sleep(AGAIN_S)
        await asyncio.Event().wait()

    async def _push(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        """Raises what ended the stream. A leader that reads slowly makes this wait, and the oldest lines fall out."""
        call = FellowLogsStub(channel).Push(metadata=metadata)
        try:
            while not call.done():
                lines, dropped = self._tap.take(BATCH_LINES)
                if lines or dropped:
                    told = [
                        logs_pb2.LogLine(at_ms=int(line.at_s * 1000), source=line.source, text=line.text)
                        for line in lines
                    ]
                    await call.write(logs_pb2.LogBatch(lines=told, dropped=dropped))
                await asyncio.sleep(EVERY_S)
            await call
        finally:
            call.cancel()
