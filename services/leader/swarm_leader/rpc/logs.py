"""fellow.v1.FellowLogs and leader.v1.Logs: lines come up from fellows, and go out to people. Only translation."""

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

import grpc
from silentswarm.fellow.v1 import logs_pb2 as up_pb2
from silentswarm.fellow.v1 import logs_pb2_grpc as up_pb2_grpc
from silentswarm.leader.v1 import logs_pb2, logs_pb2_grpc
from swarm_core.errors import BadRequest

from swarm_leader.flows.registry import Registry
from swarm_leader.logs.desk import LogDesk
from swarm_leader.logs.files import LogLine
from swarm_leader.rpc.access import current_caller

BREATH_S = (
    0.1  # between two batches of one fellow, by whatever stream: no more than 10,000 lines a second, whatever it sends
)
TAIL, TAIL_MAX = 100, 10_000


class FellowLogsServicer(up_pb2_grpc.FellowLogsServicer):
    """Takes what fellows send."""

    def __init__(self, desk: LogDesk, registry: Registry) -> None:
        self._desk = desk
        self._registry = registry
        self._turns: WeakValueDictionary[str, asyncio.Lock] = (
            WeakValueDictionary()
        )  # by fellow: streams share its breath

    async def Push(
        self, requests: AsyncIterator[up_pb2.LogBatch], context: grpc.aio.ServicerContext
    ) -> up_pb2.PushDone:
        fellow_id, taken = current_caller().fellow_id, 0
        turn = self._turns.setdefault(fellow_id, asyncio.Lock())
        async for batch in requests:
            async with turn:
                if self._registry.get(fellow_id) is None:
                    break  # deleted meanwhile: its logs are gone, and stay so
                lines = ((line.source, line.text) for line in batch.lines)
                taken += await self._desk.take(fellow_id, lines, batch.dropped)
                await asyncio.sleep(BREATH_S)
        return up_pb2.PushDone(taken=taken)


class LogsServicer(logs_pb2_grpc.LogsServicer):
    """Tells people."""

    def __init__(self, desk: LogDesk, registry: Registry) -> None:
        self._desk = desk
        self._registry = registry

    async def WatchLogs(
        self, request: logs_pb2.WatchLogsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[logs_pb2.LogLine]:
        if request.tail_lines > TAIL_MAX:
            raise BadRequest(f"at most {TAIL_MAX:,} lines at once", field="tail_lines")
        fellow_id = self._registry.find(request.fellow_id).fellow_id
        with self._desk.following(fellow_id) as follower:
            last = 0
            for line in await self._desk.tail(fellow_id, request.tail_lines or TAIL, request.source):
                last = line.number
                yield _line(line)
            if not request.follow:
                return
            async for line in follower.lines():
                if line.number > last and request.source in ("", line.source):
                    yield _line(line)


def _line(line: LogLine) -> logs_pb2.LogLine:
    return logs_pb2.LogLine(number=line.number, at_s=line.at_s, source=line.source, text=line.text)
