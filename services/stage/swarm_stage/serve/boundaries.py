"""What a stage's spec says of coded boundaries, checked before anything is loaded. Codes nothing."""

from silentswarm.core.v1 import stage_pb2
from swarm_core.errors import BadRequest
from swarm_wire.codecs import CODECS


def inner_codecs_of(spec: stage_pb2.StageSpec) -> dict[int, str]:
    """First layer behind each boundary inside the stage -> codec.

    Raises BadRequest for a codec that does not exist, a layer that is not inside the stage or named twice, and a coded
    link where there is none: tokens alone come to stage 0 and leave the last one.
    """
    is_last = spec.stage_index == spec.stage_count - 1
    for name, codec, is_link in (
        ("codec_in", spec.codec_in, spec.stage_index > 0),
        ("codec_out", spec.codec_out, not is_last),
    ):
        if codec:
            _check_codec(name, codec)
        if codec and not is_link:
            raise BadRequest(f"stage {spec.stage_index} of {spec.stage_count} codes nothing there", field=name)
    inner: dict[int, str] = {}
    for boundary in spec.inner_codecs:
        _check_codec("inner_codecs", boundary.codec)
        if not spec.layer_start < boundary.layer < spec.layer_stop or boundary.layer in inner:
            held = f"layers {spec.layer_start} to {spec.layer_stop - 1}"
            raise BadRequest(f"a boundary before layer {boundary.layer} is not one inside {held}", field="inner_codecs")
        inner[boundary.layer] = boundary.codec
    return inner


def _check_codec(name: str, codec: str) -> None:
    if codec not in CODECS:
        raise BadRequest(f"codec {codec[:40]!r} does not exist; one of: {', '.join(CODECS)}", field=name)
