"""Runs one heavy step of an import in a child process that tells its progress in JSON lines. Knows no format."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swarm_core.errors import BadRequest, DiskFull, LoadFailed, SwarmError, Unavailable

SILENCE_S = 1_800.0  # a child that says nothing for this long is stuck; converting one large tensor takes minutes
_ERRORS_BYTES_MAX = 64 * 2**10
_LINE_BYTES_MAX = 64 * 2**10
EXIT_BAD_INPUT, EXIT_DISK, EXIT_UNAVAILABLE = 2, 3, 4
_EXITS: dict[int, type[SwarmError]] = {EXIT_BAD_INPUT: BadRequest, EXIT_DISK: DiskFull, EXIT_UNAVAILABLE: Unavailable}
_HINTS = {
    signal.SIGKILL: "; the machine may have too little memory for it",
    signal.SIGXCPU: "; it computed for longer than a file of its size can take",
}
_MISSING = re.compile(r"No module named '?([\w.]+)")


@dataclass(frozen=True)
class Step:
    """What to run. needs: the extra of the distribution that has what the command imports, for when it is missing."""

    name: str
    command: Sequence[str]
    needs: str
    request: dict[str, Any] | None = None  # one JSON line on stdin: a command line would show a token to every user


async def run_step(step: Step, on_line: Callable[[dict[str, Any]], None], silence_s: float = SILENCE_S) -> None:
    """Run to the end; the child dies with the caller's cancellation.

    Raises by exit code: 2 BadRequest, 3 DiskFull, 4 Unavailable, each with the child's last line; else LoadFailed.
    """
    child = await asyncio.create_subprocess_exec(
        *step.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    errors = asyncio.create_task(_read_tail(child.stderr))
    try:
        await _send(child.stdin, step.request)
        await _read_lines(step.name, child.stdout, on_line, silence_s)
        async with asyncio.timeout(silence_s):
            code = await child.wait()
        if code:
            raise _failure(step, code, await errors)
    except TimeoutError:
        raise LoadFailed(
            f"the {step.name} step said nothing for {silence_s:g} s and was ended", step=step.name
        ) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        errors.cancel()
        await asyncio.wait({errors})


async def _send(stdin: asyncio.StreamWriter, request: dict[str, Any] | None) -> None:
    try:
        if request is not None:
            stdin.write(json.dumps(request).encode() + b"\n")
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended already; its exit code says why
    stdin.close()


async def _read_lines(
    name: str, stdout: asyncio.StreamReader, on_line: Callable[[dict[str, Any]], None], silence_s: float
) -> None:
    while True:
        try:
            async with asyncio.timeout(silence_s):
                line = await stdout.readline()
        except ValueError:
            raise LoadFailed(f"the {name} step wrote a line of more than {_LINE_BYTES_MAX} bytes", step=name) from None
        if not line:
            return
        try:
            document = json.loads(line)
        except ValueError:
            continue  # a library that prints
        if isinstance(document, dict):
            on_line(document)


async def _read_tail(stderr: asyncio.StreamReader) -> str:
    tail = b""
    while block := await stderr.read(_ERRORS_BYTES_MAX):
        tail = (tail + block)[-_ERRORS_BYTES_MAX:]
    return tail.decode("utf-8", "replace")


def _printable(words: str) -> str:
    """Without what would speak to a terminal: a model or a hub may have written part of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def _failure(step: Step, code: int, errors: str) -> SwarmError:
    """What an exit code and the words on stderr mean."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = _printable(lines[-1][:2000]) if lines else "it said nothing"
    missing = _MISSING.search(last)
    if missing:
        return BadRequest(
            f"the {step.name} step needs {missing.group(1)}, which is not installed beside the leader "
            f"({sys.executable}): pip install 'silentswarm[{step.needs}]'",
            field="source",
        )
    if code in _EXITS:
        return _EXITS[code](last)
    if "No space left on device" in errors:
        return DiskFull(f"the {step.name} step ran out of disk: {last}")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    hint = _HINTS.get(-code, "")
    return LoadFailed(f"the {step.name} step {how}{hint}: {last}", step=step.name, code=code)
