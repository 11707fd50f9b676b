"""How one reply looks from outside: where it stands while it waits, what is beside its text, its time. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from silentswarm.core.v1 import generation_pb2

from swarm_cli.performance_view import ms_text
from swarm_cli.terminal import table_of


@dataclass(frozen=True)
class Took:
    """From asking to the start of a reply and to its end, on the clock of the one who asked, in ms."""

    started_ms: float = 0.0
    total_ms: float = 0.0


class Aside:
    """What a model writes beside its answer, as lines: reasoning as it comes, and every call of a tool on its own."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._is_line_begun = False
        self._index = -1  # of the call whose line is begun

    def show(self, batch: generation_pb2.GenerationEvent.TokenBatch) -> None:
        """More of it."""
        if batch.reasoning:
            self._put(batch.reasoning)
        for call in batch.tool_calls:
            if call.index != self._index:
                self.end()
                self._index = call.index
            self._put(f"{call.name}({call.arguments}" if call.name else call.arguments)

    def end(self) -> None:
        """The answer goes on, or is over: what is begun becomes a whole line."""
        if self._is_line_begun:
            self._write(")\n" if self._index >= 0 else "\n")
        self._is_line_begun, self._index = False, -1

    def _put(self, text: str) -> None:
        self._is_line_begun = True
        self._write("".join(each if each.isprintable() or each == "\n" else " " for each in text))


def standing_text(queued: generation_pb2.GenerationEvent.Queued) -> str:
    """Where a request that waits stands, and what it waits for."""
    place = "next" if queued.position <= 1 else ordinal(queued.position)
    words = f"waiting: {place} in line" + (f"; {queued.reason}" if queued.reason else "")
    return "".join(each if each.isprintable() else " " for each in words)  # it is to stay one line


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def timing_view(done: generation_pb2.GenerationEvent.Done, took: Took) -> RenderableType:
    """Every part of a reply's time; the column "IN ALL" adds up to its last row."""
    table = table_of("WHERE THE TIME WENT", "EACH", "IN ALL", "SHARE")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, each_ms, all_ms in [*_parts(done, took), ("in all", None, took.total_ms)]:
        each = "" if each_ms is None else ms_text(each_ms)
        share = f"{all_ms / took.total_ms:.0%}" if took.total_ms else ""
        table.add_row(escape(name), each, ms_text(all_ms), share)
    return Group(table, *_beside(done))


def _parts(done: generation_pb2.GenerationEvent.Done, took: Took) -> Iterator[tuple[str, float | None, float]]:
    """What a part is called, its mean per token where it has one, and all of it, in ms; in the order of time."""
    timing, decoded = done.timing, _decoded(done)
    known_ms = timing.queue_ms + timing.prefill_ms + timing.decode_ms
    measured_ms = timing.total_ms or known_ms  # a stage that does not measure the whole says 0
    outside_ms = max(0.0, took.total_ms - measured_ms)
    before_ms = min(outside_ms, max(0.0, took.started_ms - timing.queue_ms))
    yield "the leader's queue, and the way to stage 0", None, before_ms
    yield "template and tokeniser", None, timing.tokenize_ms
    yield "waiting for a start at stage 0", None, max(0.0, timing.queue_ms - timing.tokenize_ms)
    yield "prompt, to the first token", None, timing.prefill_ms
    if decoded:
        for index, each_ms in enumerate(timing.stage_ms):
            yield f"tokens after it: stage {index}", each_ms, each_ms * decoded
        route = f" ({timing.route})" if timing.route else ""
        for name, each_ms in (
            ("sampling", timing.sample_ms),
            ("waiting for busy stages", timing.wait_ms),
            (f"links{route}", timing.link_ms),
        ):
            yield f"tokens after it: {name}", each_ms, each_ms * decoded
    yield "last of the text", None, max(0.0, measured_ms - known_ms)
    yield "the way back", None, outside_ms - before_ms


def _beside(done: generation_pb2.GenerationEvent.Done) -> Iterator[str]:
    """What is no part of the sum."""
    timing, decoded = done.timing, _decoded(done)
    prompt = f"prompt of {done.prompt_tokens:,} tokens"
    if len(timing.prefill_stage_ms) > 1:
        stages = [f"stage {index} {ms_text(each_ms)}" for index, each_ms in enumerate(timing.prefill_stage_ms)]
        prompt += f": {', '.join(stages)}, at the same time where they can"
    yield prompt
    if decoded and timing.decode_ms:
        speed = f"{decoded:,} tokens after the first: {decoded / timing.decode_ms * 1000:.1f} tokens/s"
        yield f"{speed}, {timing.batch_mean:.1f} replies a step" if timing.batch_mean else speed


def _decoded(done: generation_pb2.GenerationEvent.Done) -> int:
    """Tokens behind the first, which the prompt brings."""
    return max(0, done.completion_tokens - 1)
