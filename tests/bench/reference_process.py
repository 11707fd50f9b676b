"""transformers' own generate and forward in a process of its own, asked by JSON lines. The bench's reference.

OMP_NUM_THREADS=1 taskset -c 0 python -m tests.bench.reference_process SERVABLE
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.ring import end, pin

ANSWER_S = 600.0


class Reference:
    """A running reference."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def decode(self, streams: int, prompt_tokens: int, new_tokens: int) -> float:
        """Tokens per second of all streams after their prompt, batched."""
        return await self._ask(["decode", streams, prompt_tokens, new_tokens])

    async def prefill(self, tokens: int) -> float:
        """Prompt tokens per second of one forward."""
        return await self._ask(["prefill", tokens])

    async def ready(self) -> None:
        """Return when the model is loaded."""
        await self._ask(["prefill", 8])

    async def _ask(self, ask: list[str | int]) -> float:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(ask).encode() + b"\n")
        async with asyncio.timeout(ANSWER_S):
            answer = await self._process.stdout.readline()
        assert answer, "the reference process ended"
        return json.loads(answer)


@contextlib.asynccontextmanager
async def start_reference(servable: Path, threads: int, core: int | None) -> AsyncIterator[Reference]:
    """A loaded reference on `threads` threads, on one core or (None) any; ended with the block."""
    process = await asyncio.create_subprocess_exec(
        *(pin(core) if core is not None else ()),
        *(sys.executable, "-m", "tests.bench.reference_process", str(servable)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    try:
        reference = Reference(process)
        await reference.ready()
        yield reference
    finally:
        await end(process)


def main() -> None:
    """Load, then answer until stdin ends."""
    from tests.bench.lean_decode import Reference as Model  # torch and transformers, in this process alone
    from tests.bench.lean_decode import hugging_face_folder

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        model = Model(hugging_face_folder(Path(sys.argv[1]), folder))
        for line in sys.stdin:
            act, *arguments = json.loads(line)
            rate = model.prefill(*arguments) if act == "prefill" else model.decode(*arguments)
            print(json.dumps(rate), flush=True)


if __name__ == "__main__":
    main()
