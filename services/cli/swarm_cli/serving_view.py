"""How a served model looks on a terminal. Pure: messages in, tables out."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.quantization import NONE

from swarm_cli.speed_view import speed_lines
from swarm_cli.terminal import bytes_text, shown, table_of

ENDED = (
    serving_pb2.PLACEMENT_STATE_READY,
    serving_pb2.PLACEMENT_STATE_FAILED,
    serving_pb2.PLACEMENT_STATE_IDLE,
    serving_pb2.PLACEMENT_STATE_UNLOADED,
)


def state_text(state: int) -> str:
    """PLACEMENT_STATE_READY -> "ready"; no placement at all is "unloaded"."""
    if state == serving_pb2.PLACEMENT_STATE_UNSPECIFIED:
        return "unloaded"
    return _name(serving_pb2.PlacementState, state, "PLACEMENT_STATE_")


def route_text(route: int) -> str:
    """ROUTE_DIRECT -> "direct"; not known yet is "-"."""
    return "-" if route == stage_pb2.ROUTE_UNSPECIFIED else _name(stage_pb2.Route, route, "ROUTE_")


def served_view(status: serving_pb2.ModelStatus) -> RenderableType:
    """One model: a headline, its stages, and the planner's notes."""
    headline = f"[bold]{shown(status.model_id)}[/bold]  {state_text(status.state)}"
    if status.state == serving_pb2.PLACEMENT_STATE_READY:
        headline += f"  epoch {status.epoch}  {status.running} running, {status.waiting} waiting"
    if status.context_tokens:
        headline += f"  context {status.context_tokens} tokens"
    if status.quantization:
        headline += f"  {held_text(status)}"
    if status.batch_max:
        headline += f"  batch {status.batch_max}"
    if status.HasField("probe_lap_ms"):
        headline += f"  lap {status.probe_lap_ms:.1f} ms"
    parts: list[RenderableType] = [headline]
    if status.reason:
        parts.append(f"  reason: {shown(status.reason)}")
    if status.stages:
        parts.append(stages_table(status.stages))
        parts += [*kv_lines(status.stages), *speed_lines(status), *covers_line(status)]
    return Group(*parts, *adapters_line(status), *notes_lines(status))


def held_text(status: serving_pb2.ModelStatus) -> str:
    """How linear layers are held and what is computed in: "nf4, computed in F32"."""
    held = "not quantized" if status.quantization in ("", NONE) else shown(status.quantization)
    return f"{held}, computed in {shown(status.dtype)}" if status.dtype else held


def adapters_line(status: serving_pb2.ModelStatus) -> list[str]:
    """What else can be asked of this placement; nothing without adapters."""
    return [f"  adapters: {shown(', '.join(status.adapters))}"] if status.adapters else []


def covers_line(status: serving_pb2.ModelStatus) -> list[str]:
    """Which stages are held a second time, where and how."""
    held = [f"stage {cover.stage_index} {cover.kind} on {shown(cover.fellow_name)}" for cover in status.covers]
    return [f"  covers: {', '.join(held)}"] if held else []


def notes_lines(status: serving_pb2.ModelStatus) -> list[str]:
    """What the planner, or a fellow at load, chose for lack of something."""
    return [f"  note: {shown(note)}" for note in status.notes]


def stages_table(stages: Iterable[serving_pb2.StagePlacement]) -> RenderableType:
    """One line per stage, live figures as of the last heartbeat; weights as measured, else as planned."""
    table = table_of("  STAGE", "FELLOW", "LAYERS", "ROUTE", "STATE", "WEIGHTS", "KV TOKENS", "SESSIONS")
    for stage in stages:
        live, measured = stage.HasField("live"), stage.HasField("weight_bytes_measured")
        route = route_text(stage.route)
        table.add_row(
            f"  {stage.stage_index}",
            shown(stage.fellow_name or stage.fellow_id),
            f"{stage.layer_start}-{stage.layer_stop - 1}",
            f"{route} {shown(stage.codec_out)}" if stage.codec_out else route,
            shown(stage.state),
            bytes_text(stage.weight_bytes_measured if measured else stage.weight_bytes),
            f"{stage.live.kv_tokens_used}/{stage.live.kv_tokens_max or stage.live.spec.kv_tokens}" if live else "-",
            str(stage.live.sessions) if live else "-",
        )
    return table


def kv_lines(stages: Iterable[serving_pb2.StagePlacement]) -> list[str]:
    """What was planned for KV, and what each stage measured beside its weights; nothing before any did."""
    live = [stage for stage in stages if stage.HasField("live")]
    measured = [
        f"{shown(stage.fellow_name or stage.fellow_id)} {stage.live.kv_tokens_measured:,}"
        for stage in live
        if stage.live.HasField("kv_tokens_measured")
    ]
    if not measured:
        return []
    planned = max(stage.live.spec.kv_tokens for stage in live)
    return [f"  KV tokens: {planned:,} planned; measured to fit: {', '.join(measured)}"]


def _name(enum: object, number: int, prefix: str) -> str:
    """An enum value as a word; a number of a newer peer stays a number."""
    try:
        return enum.Name(number).removeprefix(prefix).lower()  # type: ignore[attr-defined]
    except ValueError:
        return str(number)
