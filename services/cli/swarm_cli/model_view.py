"""How the catalog and one model of it look on a terminal. Pure: messages in, tables out."""

from collections.abc import Iterable

from rich.console import RenderableType
from silentswarm.core.v1 import weights_pb2
from silentswarm.leader.v1 import models_pb2
from swarm_core.quantization import NONE

from swarm_cli.terminal import bytes_text, count_text, shown, table_of


def catalog_table(models: Iterable[models_pb2.Model]) -> RenderableType:
    """One line per model, each followed by its adapters; a damaged one says why, an adapter alone whose it is."""
    table = table_of("MODEL", "STATE", "TYPE", "LAYERS", "PARAMETERS", "WEIGHTS", whole="MODEL")
    for model, is_below in _by_base(list(models)):
        alone = f"adapter of {model.adapter.base_model_id}" if model.HasField("adapter") else model.model_type
        table.add_row(
            shown(f"  {model.model_id}" if is_below else model.model_id),
            shown(_state(model)),
            "adapter" if is_below else shown(alone),
            str(model.layer_count),
            count_text(model.parameter_count),
            bytes_text(model.weight_bytes),
        )
    return table


def _by_base(models: list[models_pb2.Model]) -> list[tuple[models_pb2.Model, bool]]:
    """Models in their order, each adapter right below its base, and whether it is."""
    bases = {model.model_id for model in models if not model.HasField("adapter")}
    rows: list[tuple[models_pb2.Model, bool]] = []
    for model in models:
        if model.HasField("adapter") and model.adapter.base_model_id in bases:
            continue
        rows.append((model, False))
        if model.model_id in bases:
            rows += [
                (each, True)
                for each in models
                if each.HasField("adapter") and each.adapter.base_model_id == model.model_id
            ]
    return rows


def model_table(model: models_pb2.Model) -> RenderableType:
    """Every fact about one model."""
    table = table_of("MODEL", shown(model.model_id))
    table.add_row("state", shown(_state(model)))
    if model.broken:
        return table
    table.add_row("type", shown(model.model_type))
    if model.HasField("adapter"):
        table.add_row("adapter of", shown(model.adapter.base_model_id))
        table.add_row("changes", shown(f"{', '.join(model.adapter.targets)}; rank {model.adapter.rank}"))
    table.add_row("layers", str(model.layer_count))
    table.add_row("parameters", count_text(model.parameter_count))
    table.add_row("weights", f"{bytes_text(model.weight_bytes)} as stored")
    for held in model.held:
        if held.quantization != NONE:
            table.add_row(f"  {shown(held.quantization)}", bytes_text(held.weight_bytes))
    if not model.HasField("adapter"):
        table.add_row("quantization", f"{shown(method_text(model.quantization))} unless a load says otherwise")
    table.add_row("context", f"{model.context_tokens_max} tokens" if model.context_tokens_max else "not stated")
    if model.HasField("split"):
        table.add_row("split", _split_text(model.split))
        for number, shard in enumerate(model.split.shards):
            table.add_row(f"  shard {number}", _shard_text(shard))
    if model.adapters:
        table.add_row("adapters", shown(", ".join(model.adapters)))
    table.add_row("weights from", shown(model.weights_from) or "the leader")
    table.add_row("source", shown(model.source))
    return table


def method_text(quantization: weights_pb2.Quantization) -> str:
    """ "nf4", or what stands for it in a leader's answer; nothing said is "none"."""
    if quantization.method:
        return quantization.method
    return f"{quantization.bits} bits" if quantization.bits else NONE


def _state(model: models_pb2.Model) -> str:
    return f"broken: {model.broken}" if model.broken else model.state or "unloaded"


def _split_text(split: models_pb2.TrainingSplit) -> str:
    count = f"{split.stage_count} stage{'' if split.stage_count == 1 else 's'}"
    return (
        f"trained over {count}" if split.recorded else f"trained over {count}, cuts not recorded: served over so many"
    )


def _shard_text(shard: models_pb2.Shard) -> str:
    text = f"layers {shard.layer_start}-{shard.layer_stop - 1}, {bytes_text(shard.weight_bytes)}"
    return f"{text}, coded as {shown(shard.codec_out)} behind it" if shard.codec_out else text
