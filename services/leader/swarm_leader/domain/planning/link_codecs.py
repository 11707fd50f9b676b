"""How hidden states are coded on the links of a ring, and at boundaries of training inside its stages. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.servable_parts import INT4, TrainingSplit
from swarm_core.slices import LayerRange

from swarm_leader.domain.holding import InnerCodec
from swarm_leader.domain.planning.plan import NO_CODEC


@dataclass(frozen=True)
class StageCodecs:
    """The codes of one stage; "" is none. What goes out of the last stage is tokens, and is never coded."""

    codec_in: str
    codec_out: str
    inner: tuple[InnerCodec, ...]


def plan_codecs(asked: str, split: TrainingSplit | None, cuts: Sequence[LayerRange]) -> list[StageCodecs]:
    """The codes of every stage.

    asked: codec of the links, NO_CODEC, or "": a boundary of training that is a cut is coded as it was trained, and
    other cuts not at all. A boundary of training inside a stage is always applied in place, as it was trained.
    """

    def on_link(layer: int) -> str:
        trained = split.codec_before(layer) if split else ""
        return (asked or trained).replace(NO_CODEC, "")

    stages = []
    for layers in cuts:
        starts = split.layer_starts if split else ()
        inside = [layer for layer in starts if layers.layer_start < layer < layers.layer_stop]
        inner = tuple(InnerCodec(layer, codec) for layer in inside if split and (codec := split.codec_before(layer)))
        stages.append(
            StageCodecs(
                codec_in="" if layers.is_first else on_link(layers.layer_start),
                codec_out="" if layers.is_last else on_link(layers.layer_stop),
                inner=inner,
            )
        )
    return stages


def codec_notes(asked: str, split: TrainingSplit | None, cuts: Sequence[LayerRange]) -> list[str]:
    """What to know of codes that were asked for, in words."""
    if not asked or asked == NO_CODEC:
        return []
    if len(cuts) == 1:
        return [f"one stage has no link: {asked} codes nothing"]
    untrained = [cut.layer_start for cut in cuts[1:] if not split or split.codec_before(cut.layer_start) != asked]
    if untrained and asked == INT4:
        return [f"{asked} where training had none changes most of what a model says; int8 changes about one word in 12"]
    return []


def needed_codecs(asked: str, split: TrainingSplit | None, stage_count: int) -> tuple[str, ...]:
    """The codecs that every fellow of such a ring must speak, wherever it will be cut."""
    links = {asked} if asked and stage_count > 1 else set()
    trained = set(split.codecs) if split else set()
    if split is not None and stage_count == split.stage_count and asked:
        trained = set()  # every boundary is a cut, and cuts are coded as asked
    return tuple(sorted((links | trained) - {"", NO_CODEC}))
