"""How a plan looks on a terminal: what each device would hold, how fast it would be. Pure: messages in, tables out."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from silentswarm.leader.v1 import serving_pb2

from swarm_cli.serving_view import adapters_line, held_text, notes_lines, route_text
from swarm_cli.speed_view import predicted_text
from swarm_cli.terminal import bytes_text, shown, table_of


def plan_view(plan: serving_pb2.ModelStatus) -> RenderableType:
    """What would be done: a headline, what each device would hold, the links, the speed, and the planner's notes."""
    count = len(plan.stages)
    headline = f"[bold]{shown(plan.model_id)}[/bold]  planned  {count} stage{'' if count == 1 else 's'}"
    headline += f"  {held_text(plan)}"
    if plan.context_tokens:
        headline += f"  context {plan.context_tokens} tokens"
    if plan.in_flight_max:
        headline += f"  {plan.in_flight_max} repl{'y' if plan.in_flight_max == 1 else 'ies'} at once"
    parts: list[RenderableType] = [headline, devices_table(plan.stages)]
    if count > 1:
        parts.append(f"  links: {'; '.join(_links(plan.stages))}")
    parts += adapters_line(plan)
    parts.append(f"  predicted: {predicted_text(plan)}")
    return Group(*parts, *notes_lines(plan))


def devices_table(stages: Iterable[serving_pb2.StagePlacement]) -> RenderableType:
    """One line per device, or per stage where the leader does not say which; what it would hold and what is free."""
    table = table_of("STAGE", "FELLOW", "LAYERS", "DEVICE", "WEIGHTS", "KV", "WORKING", "FREE")
    for stage in stages:
        for held in stage.devices or [stage]:
            table.add_row(
                str(stage.stage_index),
                shown(stage.fellow_name or stage.fellow_id),
                f"{held.layer_start}-{held.layer_stop - 1}",
                str(held.device_index) if stage.devices else "-",
                bytes_text(held.weight_bytes),
                bytes_text(held.kv_bytes),
                bytes_text(held.working_bytes),
                bytes_text(held.free_bytes if held.HasField("free_bytes") else None),
            )
    return table


def _links(stages: Iterable[serving_pb2.StagePlacement]) -> Iterator[str]:
    """ "0 to 1 direct, int8" for each; the last one, which carries tokens, goes back to stage 0."""
    ring = list(stages)
    for stage, after in zip(ring, (*ring[1:], ring[0]), strict=True):
        words = f"{stage.stage_index} to {after.stage_index} {route_text(stage.route)}"
        yield f"{words}, {shown(stage.codec_out)}" if stage.codec_out else words
