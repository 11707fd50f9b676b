"""Stage processes without their imports: forked from one process that has imported everything. For tests only.

A stage imports torch and transformers for 4 s of CPU before it does anything. Those that a test process starts are
forked, one as the other, from a nursery that did it once. From there on they are what `python -m swarm_stage` is.
"""

import asyncio
import atexit
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

_BIRTH_S = 60.0  # the first waits for the imports
_MESSAGE_BYTES_MAX = 2**16


class Stage:
    """A forked process: what of asyncio.subprocess.Process these tests use."""

    def __init__(self, pid: int, stdin: int, ending: int) -> None:
        """stdin: end of a pipe to write to. ending: end of a pipe that brings the exit code, like a shell's."""
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb", buffering=0)
        self._ending = ending
        self._code: int | None = None

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        if self._code is None:
            try:
                told = os.read(self._ending, 64)
            except BlockingIOError:
                return None
            self._code = int(told or -signal.SIGKILL)  # nothing: the nursery was killed, and took it along
            os.close(self._ending)
            self.stdin.close()
        return self._code

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self.returncode) is None:
            is_told = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(self._ending, is_told.set)
            try:
                await is_told.wait()
            finally:
                loop.remove_reader(self._ending)
        return code

    def send_signal(self, number: int) -> None:
        """As kill(2); nothing for one that has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def start_stage(program: Sequence[str], environ: Mapping[str, str]) -> Stage:
    """`python -m PROGRAM`, forked from this process's nursery. Blocks for some seconds the first time."""
    line = _nursery()
    (read, stdin), (ending, told) = os.pipe(), os.pipe()
    os.set_blocking(ending, False)
    try:
        order = json.dumps({"program": list(program), "environ": dict(environ)}).encode()
        socket.send_fds(line, [order], [read, told])
        pid = int(line.recv(64) or 0)
    finally:
        os.close(read)
        os.close(told)
    assert pid, "the nursery of stages has ended"
    return Stage(pid, stdin, ending)


@cache
def _nursery() -> socket.socket:
    """The line to the one nursery of this process, which ends when the line does."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.settimeout(_BIRTH_S)
    with there:
        command = [sys.executable, "-m", __name__, str(there.fileno())]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=environ)
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def _serve(line: socket.socket) -> None:
    """Fork a stage for every order, tell how each ends. Returns when the line is closed; the kernel ends the stages."""
    from swarm_stage.serve.importing import import_slice_code

    import_slice_code()
    import swarm_stage.serve.listener
    import swarm_stage.text.codec  # noqa: F401

    with selectors.DefaultSelector() as events:
        events.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is line:
                    if not _birth(line, events):
                        return
                else:
                    pid, told = key.data
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    events.unregister(key.fileobj)
                    os.close(key.fd)
                    os.write(told, str(code).encode())
                    os.close(told)


def _birth(line: socket.socket, events: selectors.BaseSelector) -> bool:
    message, descriptors, _, _ = socket.recv_fds(line, _MESSAGE_BYTES_MAX, 2)
    if not message:
        return False
    stdin, told = descriptors
    order = json.loads(message)
    pid = os.fork()
    if pid == 0:
        os.dup2(stdin, 0)
        events.close()
        line.close()
        for each in descriptors:
            os.close(each)
        os.environ.clear()
        os.environ.update(order["environ"])
        module, *arguments = order["program"]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        os._exit(0)
    os.close(stdin)
    events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))
    line.send(str(pid).encode())
    return True


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
