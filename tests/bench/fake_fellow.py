"""A fellow that speaks the real protocol and makes up its replies at an exact pace. Holds no model.

    python -m tests.bench.fake_fellow --leader HOST:PORT --interval-ms 32

The first token leaves at once, every other `interval-ms` after the one before it was due. A token's text is the moment
it left, in ns on the monotonic clock, which all processes of a machine share. Prints "joined" once it serves.
"""

import argparse
import asyncio
import contextlib
import random
import time

from silentswarm.core.v1 import capabilities_pb2, generation_pb2
from silentswarm.fellow.v1 import inference_link_pb2

from tests.integration.leader.scripted_fellow import ScriptedFellow, declare

Event = generation_pb2.GenerationEvent
SESSIONS_MAX = 128


class PacingFellow(ScriptedFellow):
    """Replies with as many tokens as are asked for, one each interval."""

    def __init__(self, interval_s: float) -> None:
        able = declare(serve_concurrent=capabilities_pb2.ServeConcurrent(in_flight_max=SESSIONS_MAX))
        super().__init__("bench", capabilities=able)
        self._interval_s = interval_s
        self._pacing: set[asyncio.Task[None]] = set()

    def _reply(self, request: inference_link_pb2.ReplyRequest, texts: list[str]) -> None:
        task = asyncio.create_task(self._pace(request))
        self._pacing.add(task)
        task.add_done_callback(self._pacing.discard)

    async def _pace(self, request: inference_link_pb2.ReplyRequest) -> None:
        name, tokens = request.request_id, request.generation.new_tokens_max
        self.say(name, 1, started=Event.Started(prompt_tokens=3))
        self._token(name, 2)
        # Replies that come together do not go on in step.
        due_s = time.monotonic() + random.random() * self._interval_s
        for index in range(1, tokens):
            due_s += self._interval_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            self._token(name, index + 2)
        done = Event.Done(finish_reason=generation_pb2.FINISH_REASON_LENGTH, prompt_tokens=3, completion_tokens=tokens)
        self.say(name, tokens + 2, done=done)

    def _token(self, name: str, sequence: int) -> None:
        self.say(name, sequence, tokens=Event.TokenBatch(text=f"{time.monotonic_ns()} ", ids=[sequence]))


async def serve(leader: str, interval_s: float) -> None:
    """Join and serve until cancelled."""
    fellow = PacingFellow(interval_s)
    await fellow.join(leader)
    print("joined", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leader", required=True)
    parser.add_argument("--interval-ms", type=float, required=True)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.leader, options.interval_ms / 1e3))


if __name__ == "__main__":
    main()
