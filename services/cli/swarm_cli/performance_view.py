"""How the last minutes of a model look on a terminal. Pure: messages in, text and tables out."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from silentswarm.leader.v1 import serving_pb2

from swarm_cli.serving_view import route_text
from swarm_cli.terminal import bytes_text, table_of

SPREADS = (("first token", "first_token"), ("between tokens", "inter_token"))


def lately_text(performance: serving_pb2.ModelPerformance) -> str:
    """Two lines for an overview: how fast it was, and what came of the requests. One when nothing was asked of it."""
    span = f"last {span_text(performance.window_s)}"
    counts = counts_text(performance)
    if not counts:
        return f"  {span}: no replies"
    speed = f"{performance.tokens_per_s:.1f} tokens/s; " if performance.tokens_per_s else ""
    spreads = [
        f"{name} {ms_text(getattr(performance, part).p50_ms)} (p95 {ms_text(getattr(performance, part).p95_ms)})"
        for name, part in SPREADS
        if performance.HasField(part)
    ]
    return "\n".join((f"  {span}: {speed}{counts}", *([f"  {', '.join(spreads)}"] if spreads else [])))


def performance_view(performance: serving_pb2.ModelPerformance) -> RenderableType:
    """Everything about one model."""
    headline = (
        f"[bold]{escape(performance.model_id)}[/bold]  last {span_text(performance.window_s)}  "
        f"{performance.tokens_per_s:.1f} tokens/s  {performance.running} running, {performance.waiting} waiting"
    )
    tokens = f"{performance.prompt_tokens:,} prompt tokens, {performance.generated_tokens:,} generated"
    parts: list[RenderableType] = [headline, counts_text(performance) or "no replies", tokens]
    if performance.HasField("first_token"):
        parts += ["", _spreads(performance)]
    if performance.HasField("split"):
        parts += ["", _split(performance), _beside(performance.split)]
    if performance.stages:
        parts += ["", _stages(performance.stages)]
    return Group(*parts)


def counts_text(performance: serving_pb2.ModelPerformance) -> str:
    """What came of the requests; those that were refused apart from those that failed. "" when there were none."""
    counts = (
        (performance.completed, "done"),
        (performance.failed, "failed"),
        (performance.too_long, "too long"),
        (performance.turned_away, "turned away"),
        (performance.cancelled, "cancelled"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def span_text(span_s: float) -> str:
    """900 -> "15 min", 42 -> "42 s"; a window that is a bucket short is what it is called."""
    return f"{span_s:.0f} s" if span_s < 90 else f"{round(span_s / 60 + 0.2)} min"


def ms_text(duration_ms: float) -> str:
    """A duration for people, three digits or so."""
    if duration_ms >= 10_000:
        return f"{duration_ms / 1000:.1f} s"
    if duration_ms >= 1000:
        return f"{duration_ms / 1000:.2f} s"
    return f"{duration_ms:.0f} ms" if duration_ms >= 100 else f"{duration_ms:.1f} ms"


def _spreads(performance: serving_pb2.ModelPerformance) -> RenderableType:
    table = table_of("", "P50", "P95", "P99")
    for name, part in SPREADS:
        if performance.HasField(part):
            spread = getattr(performance, part)
            table.add_row(name, *(ms_text(each_ms) for each_ms in (spread.p50_ms, spread.p95_ms, spread.p99_ms)))
    return table


def _split(performance: serving_pb2.ModelPerformance) -> RenderableType:
    """Per reply and per token, each with its share of the token."""
    split = performance.split
    names = {stage.stage_index: f"stage {stage.stage_index} on {stage.fellow_name}" for stage in performance.stages}
    token = [
        *((names.get(index, f"stage {index}"), each_ms) for index, each_ms in enumerate(split.stage_ms)),
        ("waiting for a busy stage", split.wait_ms),
        ("links", split.link_ms),
        ("sampling", split.sample_ms),
    ]
    whole_ms = sum(each_ms for _, each_ms in token)
    table = table_of("WHERE TIME WENT", "", "MEAN", "SHARE")
    reply = (("waiting for a start", split.queue_ms), ("prompt", split.prefill_ms), ("to text", split.detokenize_ms))
    for index, (name, each_ms) in enumerate(reply):
        table.add_row("each reply" if not index else "", name, ms_text(each_ms), "")
    for index, (name, each_ms) in enumerate(token):
        share = f"{each_ms / whole_ms:.0%}" if whole_ms else ""
        table.add_row("each token" if not index else "", escape(name), ms_text(each_ms), share)
    table.add_row("", "in all", ms_text(whole_ms), "")
    return table


def _beside(split: serving_pb2.TimeSplit) -> str:
    """What is no time."""
    return f"a step computed {split.batch_mean:.1f} replies; a token moved {bytes_text(round(split.bytes_per_token))}"


def _stages(stages: Iterable[serving_pb2.StagePerformance]) -> RenderableType:
    table = table_of("STAGE", "FELLOW", "DEVICE", "LAYERS", "ROUTE", "BUSY", "KV TOKENS")
    for stage in stages:
        table.add_row(
            str(stage.stage_index),
            escape(stage.fellow_name or stage.fellow_id),
            escape(", ".join(stage.devices)) or "-",
            f"{stage.layer_start}-{stage.layer_stop - 1}",
            route_text(stage.route),
            f"{stage.busy_share:.0%}" if stage.HasField("busy_share") else "-",
            f"{stage.kv_tokens_used}/{stage.kv_tokens_max}",
        )
    return table
