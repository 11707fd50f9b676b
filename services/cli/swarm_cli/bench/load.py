"""Load on an endpoint: so many streams, each asks again when its reply is over. Bounded; prints nothing."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from swarm_core.errors import SwarmError

from swarm_cli.bench.sample import Sample
from swarm_cli.bench.words import prompt_of

AFTER_FAILURE_S = 0.5  # a stream waits so long after a failure, doubled each time, so that refusals are not a flood
AFTER_FAILURE_MAX_S = 5.0
WORDS_MIN = 1


class Server(Protocol):
    """Who is asked."""

    url: str

    async def ask(self, model: str, prompt: str, new_tokens: int) -> Sample:
        """One reply; a failure is in the sample, and so is a cancel."""


@dataclass(frozen=True)
class Load:
    """What to ask for. requests: in all, duration_s: until the end; None is no bound, and one of them is given."""

    model: str
    streams: int
    prompt_tokens: int
    new_tokens: int
    requests: int | None
    duration_s: float | None


@dataclass
class Run:
    """A load as far as it came. is_interrupted: it was cancelled before its end."""

    samples: list[Sample] = field(default_factory=list)
    asked: int = 0
    is_interrupted: bool = False


async def measure_words(server: Server, load: Load) -> int:
    """How many words make a prompt of about load.prompt_tokens with this model's template; warms it up too.

    Raises SwarmError when the endpoint refuses even that.
    """
    words = load.prompt_tokens
    for turn in range(2):
        sample = await server.ask(load.model, prompt_of(max(WORDS_MIN, words), turn), 1)
        if not sample.is_whole:
            raise SwarmError(f"{load.model} at {server.url} does not reply: {sample.failure}: {sample.words}")
        words += load.prompt_tokens - (sample.prompt_tokens or load.prompt_tokens)
    return max(WORDS_MIN, words)


async def put_load(server: Server, load: Load, words: int, on_sample: Callable[[Run], None]) -> Run:
    """Ask until the load is done, its time is over, or this is cancelled; returns what was measured in any case."""
    run = Run()
    streams = [
        asyncio.ensure_future(_stream(server, load, words, run, on_sample, stream)) for stream in range(load.streams)
    ]
    try:
        await asyncio.wait(streams, timeout=load.duration_s)
    except asyncio.CancelledError:
        run.is_interrupted = True
        if (task := asyncio.current_task()) is not None:
            task.uncancel()  # the caller prints what there is; a second Ctrl-C still ends everything
    for stream in streams:
        stream.cancel()
    for ended in await asyncio.gather(*streams, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    return run


async def _stream(
    server: Server, load: Load, words: int, run: Run, on_sample: Callable[[Run], None], stream: int
) -> None:
    """One reply after the other."""
    wait_s = AFTER_FAILURE_S
    while load.requests is None or run.asked < load.requests:
        turn = run.asked
        run.asked += 1
        sample = await server.ask(load.model, prompt_of(words, 100 + turn), load.new_tokens)
        run.samples.append(sample)
        on_sample(run)
        if sample.is_whole:
            wait_s = AFTER_FAILURE_S
            continue
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return
        await asyncio.sleep(wait_s)
        wait_s = min(AFTER_FAILURE_MAX_S, wait_s * 2)


def elapsed_s(run: Run) -> float:
    """Seconds since the first request."""
    return time.monotonic() - min((sample.sent_s for sample in run.samples), default=time.monotonic())
