"""Streams that go on while a test does something to their swarm, and what became of them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from tests.e2e.chaos.background import Background
from tests.e2e.chaos.fleet import Fleet
from tests.e2e.chaos.streams import STREAM_S, Stream, talk_all
from tests.e2e.swarm import wait_for

BEGUN_TOKENS = 6
BEGUN_S = 60.0
Texts = Mapping[tuple[str, int | None], str]


@dataclass
class Talk:
    """Streams under way."""

    streams: Sequence[Stream]
    tokens: int
    _future: "Future[None]"

    def finish(self) -> None:
        """Wait until each is over, well or not."""
        self._future.result(STREAM_S)

    def errors(self) -> list[str]:
        """Of streams that ended in one."""
        return [stream.error for stream in self.streams if stream.error]

    def wrong(self, alone: Texts) -> list[str]:
        """Prompts whose text, or number of tokens, is not the undisturbed one."""
        return [
            stream.prompt
            for stream in self.streams
            if stream.text != alone[stream.prompt, stream.seed] or stream.completion_tokens != self.tokens
        ]

    def pause_s(self, after_s: float) -> float:
        """The longest silence in any stream after a moment."""
        return max(stream.longest_gap_s(after_s) for stream in self.streams)


def begin(fleet: Fleet, background: Background, streams: Sequence[Stream], tokens: int) -> Talk:
    """Until each stream has a few tokens."""
    talk = Talk(streams, tokens, background.start(talk_all(fleet.http, streams, tokens)))
    wait_for(
        lambda: all(len(stream.arrivals_s) >= BEGUN_TOKENS or stream.is_over for stream in streams),
        BEGUN_S,
        "running streams",
        every_s=0.02,
    )
    assert talk.errors() == [], "before any fault"
    return talk


def hear_each(fleet: Fleet, background: Background, streams: Sequence[Stream], tokens: int) -> Texts:
    """What each says alone and undisturbed, by prompt and seed."""
    texts = {}
    for stream in streams:
        background.do(talk_all(fleet.http, [stream], tokens), within_s=STREAM_S)
        assert not stream.error, stream.error
        texts[stream.prompt, stream.seed] = stream.text
    return texts
