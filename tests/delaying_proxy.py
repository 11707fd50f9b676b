"""A TCP proxy that adds time each way, and has every fault of a line. Does not look into what passes.

It reorders nothing and limits no throughput: every chunk leaves `one_way_s` after it came. A process of its own
(`start_proxy`), so that it shares no interpreter with what is measured:

    async with start_proxy() as proxy:
        port = await proxy.forward("127.0.0.1", 5000, one_way_s=0.010)
        ...
        await proxy.cut(port)

Faults of a forward, each until `mend`: `cut` (resets, new ones too), `end` (closes in order, once), `refuse` (nobody
listens any more), `stall` (passes nothing on and holds it, both ways or one), `lose` (a half-open line: what comes is
gone for good, both ways or one, and so is what new connections send). `delay`, `jitter`, `throttle`: its speed.

Its timers are exact to about 0.1 ms on a quiet machine: epoll counts milliseconds, so its loop waits with select(),
with the kernel's timer slack at its least. What it really added is measured with `measure_round_trip_s`.
The handshake of a connection is not delayed, only what is sent on it.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

QUEUED_BYTES_MAX = 256 * 2**20  # of one direction; beyond it the sender waits
THROTTLED_BYTES_MAX = 64 * 2**10  # a throttled line holds no more than this, so that the sender feels it
DUE_SLACK_S = 20e-6  # what is due within this goes now: another round of the loop takes as long
PR_SET_TIMERSLACK = 29
UP, DOWN = "up", "down"  # from whoever dialled the proxy, and back to it
_CLOSE = object()
_END = object()


@dataclass
class Way:
    """How one forward treats its connections. Shared by all of them, changed at any time."""

    host: str
    port: int
    one_way_s: float
    bytes_per_s: float = 0.0  # 0: no limit
    jitter_s: float = 0.0  # on top of one_way_s, drawn for each chunk; order is kept
    is_cut: bool = False
    stalled: frozenset[str] = frozenset()  # directions
    lost: frozenset[str] = frozenset()
    ends: set["_End"] = field(default_factory=set)
    server: asyncio.Server | None = None  # None: it refuses


class _End(asyncio.Protocol):
    """One connection of a pair: what it receives leaves at the other end, later."""

    def __init__(self, way: Way, lateness_s: list[float], direction: str = UP) -> None:
        """direction: of what it receives."""
        self.way = way
        self._direction = direction
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._lateness_s = lateness_s
        self._queue: deque[tuple[float, Any]] = deque()
        self._queued_bytes = 0
        self._free_s = 0.0  # when a throttled line has passed on all before
        self._last_due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_source_paused = False
        self._is_sink_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.way.ends.add(self)
        if self.way.is_cut:
            self.reset()
        elif self.other is None:
            transport.pause_reading()
            self._task = self._loop.create_task(self._reach_target())

    async def _reach_target(self) -> None:
        """Make the other half of the pair."""
        other = _End(self.way, self._lateness_s, DOWN)
        other.other = self
        try:
            await self._loop.create_connection(lambda: other, self.way.host, self.way.port)
        except OSError:
            self.reset()
            return
        self.other = other
        assert self.transport
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._direction in self.way.lost:
            return
        now_s = self._loop.time()
        due_s = now_s + self.way.one_way_s
        if self.way.bytes_per_s:
            self._free_s = max(self._free_s, now_s) + len(data) / self.way.bytes_per_s
            due_s = self._free_s + self.way.one_way_s
        if self.way.jitter_s:
            due_s += random.random() * self.way.jitter_s
        self._queued_bytes += len(data)
        self._put(due_s, data)

    def eof_received(self) -> bool:
        if self._direction not in self.way.lost:
            self._put(self._loop.time() + self.way.one_way_s, _END)
        return True

    def connection_lost(self, failure: Exception | None) -> None:
        self.way.ends.discard(self)
        if not self.way.is_cut and self._direction not in self.way.lost:
            self._put(self._loop.time() + self.way.one_way_s, _CLOSE)

    def pause_writing(self) -> None:
        """This end takes no more: its counterpart keeps what it holds."""
        if self.other:
            self.other._is_sink_full = True

    def resume_writing(self) -> None:
        """This end takes again."""
        if self.other:
            self.other._is_sink_full = False
            self.other.release()

    def release(self) -> None:
        """Pass on what is due."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        sink = self.other.transport if self.other else None
        is_held = self._direction in self.way.stalled
        while self._queue and sink and not self._is_sink_full and not is_held:
            due_s, item = self._queue[0]
            now_s = self._loop.time()
            if due_s > now_s + DUE_SLACK_S:
                self._timer = self._loop.call_at(due_s, self.release)
                break
            self._queue.popleft()
            self._lateness_s.append(max(0.0, now_s - due_s))
            self._pass_on(sink, item)
        self._pace_source()

    def reset(self) -> None:
        """Drop this connection so that its peer sees a reset, not an end."""
        if self.transport:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def _pass_on(self, sink: asyncio.Transport, item: Any) -> None:
        if item is _CLOSE:
            sink.close()
        elif sink.is_closing():
            self._queued_bytes = 0
        elif item is _END:
            with contextlib.suppress(OSError):  # reset meanwhile
                sink.write_eof()
        else:
            self._queued_bytes -= len(item)
            sink.write(item)

    def _put(self, due_s: float, item: Any) -> None:
        due_s = self._last_due_s = max(due_s, self._last_due_s)
        self._queue.append((due_s, item))
        if self._timer is None:
            self.release()
        else:
            self._pace_source()

    def _pace_source(self) -> None:
        """Let the sender wait while too much is held, and no longer."""
        held_max = THROTTLED_BYTES_MAX if self.way.bytes_per_s else QUEUED_BYTES_MAX
        is_too_much = self._queued_bytes > held_max
        if self.transport is None or self.transport.is_closing() or is_too_much == self._is_source_paused:
            return
        self._is_source_paused = is_too_much
        (self.transport.pause_reading if is_too_much else self.transport.resume_reading)()


class DelayingProxy:
    """The forwards of one event loop. Its accuracy is the loop's: use `start_proxy` to measure with it."""

    def __init__(self) -> None:
        self._ways: dict[int, Way] = {}
        self._lateness_s: list[float] = []

    async def forward(self, host: str, port: int, one_way_s: float) -> int:
        """Listen on a free port of 127.0.0.1 for connections to host:port; returns the port."""
        way = Way(host, port, one_way_s)
        await self._listen(way, 0)
        assert way.server
        listening = way.server.sockets[0].getsockname()[1]
        self._ways[listening] = way
        return listening

    async def _listen(self, way: Way, port: int) -> None:
        loop = asyncio.get_running_loop()
        way.server = await loop.create_server(lambda: _End(way, self._lateness_s), "127.0.0.1", port)

    async def cut(self, port: int) -> None:
        """Reset every connection of a forward, and every new one until `mend`."""
        way = self._ways[port]
        way.is_cut = True
        for end in list(way.ends):
            end.reset()

    async def end(self, port: int) -> None:
        """Close every connection of a forward as both programs would: an end, no reset. New ones pass."""
        for end in list(self._ways[port].ends):
            if end.transport:
                end.transport.close()

    async def refuse(self, port: int) -> None:
        """Listen no longer: new connections are refused, as of a machine whose program is gone. Old ones go on."""
        server, self._ways[port].server = self._ways[port].server, None
        if server:
            server.close()

    async def stall(self, port: int, direction: str = "") -> None:
        """Pass nothing on, close nothing; what comes is held. direction: UP or DOWN; empty is both."""
        self._ways[port].stalled |= _directions(direction)

    async def lose(self, port: int, direction: str = "") -> None:
        """A half-open line: what comes is lost, ends and resets too, and nobody is told. Likewise."""
        self._ways[port].lost |= _directions(direction)

    async def delay(self, port: int, one_way_s: float) -> None:
        """From now on it takes so long each way."""
        self._ways[port].one_way_s = one_way_s

    async def jitter(self, port: int, most_s: float) -> None:
        """On top of that up to so much, each chunk another time; 0 lifts it."""
        self._ways[port].jitter_s = most_s

    async def throttle(self, port: int, bytes_per_s: float) -> None:
        """Pass on no more than this each way; 0 lifts it."""
        self._ways[port].bytes_per_s = bytes_per_s

    async def mend(self, port: int) -> None:
        """End every fault but those of speed. A line that lost resets its connections: no stream has a gap."""
        way = self._ways[port]
        had_gaps = bool(way.lost)
        way.is_cut, way.stalled, way.lost = False, frozenset(), frozenset()
        if way.server is None:
            await self._listen(way, port)
        for end in list(way.ends):
            if had_gaps:
                end.reset()
            else:
                end.release()

    async def lateness(self) -> dict[str, float]:
        """How late chunks left since the last call: how many, and median, 99th percentile and most, in ms."""
        late = sorted(self._lateness_s)
        self._lateness_s.clear()
        if not late:
            return {"chunks": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
        picked = {"p50_ms": late[len(late) // 2], "p99_ms": late[int(len(late) * 0.99)], "max_ms": late[-1]}
        return {"chunks": len(late), **{name: value * 1e3 for name, value in picked.items()}}

    async def close(self) -> None:
        """Stop listening, drop every connection."""
        for way in self._ways.values():
            if way.server:
                way.server.close()
            for end in list(way.ends):
                end.reset()


def _directions(direction: str) -> frozenset[str]:
    assert direction in ("", UP, DOWN), direction
    return frozenset((direction,) if direction else (UP, DOWN))


class ProxyProcess:
    """A DelayingProxy in a process of its own, asked over its pipes; every method is the proxy's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    async def forward(self, host: str, port: int, one_way_s: float) -> int:
        return await self._ask("forward", host, port, one_way_s)

    async def cut(self, port: int) -> None:
        await self._ask("cut", port)

    async def end(self, port: int) -> None:
        await self._ask("end", port)

    async def refuse(self, port: int) -> None:
        await self._ask("refuse", port)

    async def stall(self, port: int, direction: str = "") -> None:
        await self._ask("stall", port, direction)

    async def lose(self, port: int, direction: str = "") -> None:
        await self._ask("lose", port, direction)

    async def delay(self, port: int, one_way_s: float) -> None:
        await self._ask("delay", port, one_way_s)

    async def jitter(self, port: int, most_s: float) -> None:
        await self._ask("jitter", port, most_s)

    async def throttle(self, port: int, bytes_per_s: float) -> None:
        await self._ask("throttle", port, bytes_per_s)

    async def mend(self, port: int) -> None:
        await self._ask("mend", port)

    async def lateness(self) -> dict[str, float]:
        return await self._ask("lateness")

    async def _ask(self, act: str, *arguments: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        async with self._asking, asyncio.timeout(10):
            self._process.stdin.write(json.dumps([act, *arguments]).encode() + b"\n")
            answer = await self._process.stdout.readline()
        assert answer, "the proxy process ended"
        return json.loads(answer)


@contextlib.asynccontextmanager
async def start_proxy() -> AsyncIterator[ProxyProcess]:
    """A proxy process, ended with the block, or with this process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.delaying_proxy"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield ProxyProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure_round_trip_s(proxy: ProxyProcess, one_way_s: float, rounds: int = 50) -> list[float]:
    """Round trips of one byte through a forward of `one_way_s`, seconds, less those without the proxy (median)."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64):
            writer.write(data)
        writer.close()

    async def round_trips(port: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        taken = []
        for _ in range(rounds):
            started_s = time.perf_counter()
            writer.write(b".")
            await reader.readexactly(1)
            taken.append(time.perf_counter() - started_s)
        writer.close()
        return taken

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        target = server.sockets[0].getsockname()[1]
        bare = sorted(await round_trips(target))[rounds // 2]
        delayed = await round_trips(await proxy.forward("127.0.0.1", target, one_way_s))
    return [taken - bare for taken in delayed]


async def _serve() -> None:
    """Answer one JSON line with another until stdin ends."""
    proxy = DelayingProxy()
    loop = asyncio.get_running_loop()
    asks = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asks), sys.stdin)
    while line := await asks.readline():
        act, *arguments = json.loads(line)
        print(json.dumps(await getattr(proxy, act)(*arguments)), flush=True)


def main() -> None:
    """Serve with timers finer than epoll's, ahead of others where the system allows."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with contextlib.suppress(OSError):  # a line takes no processor: it must not wait for one
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
