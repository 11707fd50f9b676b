"""A child process for work that may never end: a model's template, a caller's grammar. Killed when its time is up.

Blocks the thread that asks. What is done in there, and within which limits, is workroom_child.py's.
"""

import json
import os
import queue
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from swarm_core.errors import Overloaded

START_TIMEOUT_S = 30.0  # a new Python on a busy machine; measured at 0.15 s on a quiet one
WAIT_S = 10.0  # for a room that is free
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class TaskRefused(Exception):
    """The work was done and came to nothing. is_hostile: it is never innocent. which: the part it failed at."""

    def __init__(self, why: str, is_hostile: bool = False, which: str = "") -> None:
        super().__init__(why)
        self.is_hostile = is_hostile
        self.which = which


class TaskKilled(Exception):
    """The work did not end in time, or took its process down with it."""


class Workroom:
    """One child, started when it is first asked and again after each end. For one caller at a time."""

    def __init__(self, equipment: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """equipment: what a new child is given before its first task."""
        self._equipment = equipment
        self._child: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def ask(self, task: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """What the child answers. Raises TaskRefused with its words, TaskKilled when there was no answer."""
        if self._child is None or self._child.poll() is not None:
            self._start()
        return self._exchange(task, timeout_s)

    def close(self) -> None:
        """End the child; the next task starts another."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _start(self) -> None:
        self.close()
        ours, its = socket.socketpair()
        with its:
            self._line = ours
            # Not this process's environment: what runs in there is to find no credential.
            paths = os.pathsep.join(path for path in sys.path if path)
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "swarm_stage.text.workroom_child", str(its.fileno())],
                env={"PYTHONPATH": paths, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
        equipment = self._equipment() if self._equipment is not None else {}
        self._exchange({"do": "begin", **equipment}, START_TIMEOUT_S)

    def _exchange(self, task: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        assert self._line is not None
        ends_s = time.monotonic() + timeout_s
        message = json.dumps({**task, "seconds": timeout_s}, ensure_ascii=False).encode("utf-8", "surrogatepass")
        try:
            self._line.settimeout(timeout_s)
            self._line.sendall(_LENGTH.pack(len(message)) + message)
            (length,) = _LENGTH.unpack(self._receive(_LENGTH.size, ends_s))
            if length > ANSWER_BYTES_MAX:
                raise EOFError
            answer = json.loads(self._receive(length, ends_s).decode("utf-8", "surrogatepass"))
        except TimeoutError:
            self.close()
            raise TaskKilled(f"it did not end within {timeout_s:g} s") from None
        except (OSError, EOFError):
            self.close()
            raise TaskKilled("it took more memory or time than it may have") from None
        if "refused" in answer:
            raise TaskRefused(answer["refused"], answer.get("hostile", False), answer.get("which", ""))
        return answer

    def _receive(self, length: int, ends_s: float) -> bytes:
        assert self._line is not None
        parts: list[bytes] = []
        while length:
            self._line.settimeout(max(0.001, ends_s - time.monotonic()))
            part = self._line.recv(min(length, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class Workrooms:
    """A few rooms, lent to whoever asks. Safe to use from several threads."""

    def __init__(self, count: int, equipment: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self._rooms: queue.LifoQueue[Workroom] = queue.LifoQueue(count)  # the last one used is the one that is warm
        for _ in range(count):
            self._rooms.put(Workroom(equipment))

    def ask(self, task: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """What a child answers. Raises TaskRefused, TaskKilled, Overloaded when no room is free for WAIT_S."""
        try:
            room = self._rooms.get(timeout=WAIT_S)
        except queue.Empty:
            raise Overloaded(f"nothing was free within {WAIT_S:g} s to work on templates and grammars") from None
        try:
            return room.ask(task, timeout_s)
        finally:
            self._rooms.put(room)

    def close(self) -> None:
        """End the children of the rooms that are free."""
        free = []
        while not self._rooms.empty():
            free.append(self._rooms.get_nowait())
        for room in free:
            room.close()
            self._rooms.put(room)
