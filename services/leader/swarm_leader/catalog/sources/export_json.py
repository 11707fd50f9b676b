"""servable.json as training exports it: where it cut, how it quantised, what it adapted. Pure."""

from dataclasses import dataclass
from typing import Any

from swarm_core.decoder_config import LAYERS_MAX
from swarm_core.errors import BadRequest, ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import MANIFEST_NAME
from swarm_core.quantization import method_of
from swarm_core.servable_parts import CODECS

SHARDS_NAME = "shards"  # the folder of an export that others do not have
_BYTES_MAX = 2**20


@dataclass(frozen=True)
class Export:
    """What training said. stage_count, boundaries None: not recorded. boundaries: first layer of every stage but the
    first. codecs: of every boundary, "" not coded; empty says nothing. base: name of the model an adapter is for.
    """

    stage_count: int | None = None
    boundaries: tuple[int, ...] | None = None
    codecs: tuple[str, ...] = ()
    quantization: str = ""
    base: str = ""


def parse_export(raw: bytes) -> Export:
    """Read it. Raises BadRequest for what is not served and ServableCorrupt for what cannot be."""
    document = read_json_object(raw, MANIFEST_NAME, _BYTES_MAX)
    if "format" in document:
        raise BadRequest(
            f"{MANIFEST_NAME} is of a finished servable: put its folder into SWARM_SERVABLE_MODELS_ROOT, under "
            "its model's name",
            field="source",
        )
    split = document.get("split") or {}
    if not isinstance(split, dict):
        raise _wrong("split", split, "an object")
    boundaries = _boundaries(split.get("boundaries"))
    stage_count = split.get("stage_count")
    if stage_count is not None and (not _is_count(stage_count) or not 1 <= stage_count <= LAYERS_MAX):
        raise _wrong("split.stage_count", stage_count, f"a count from 1 to {LAYERS_MAX}")
    if boundaries is not None and stage_count is not None and len(boundaries) != stage_count - 1:
        raise ServableCorrupt(
            f"{MANIFEST_NAME}: {stage_count} stages have {stage_count - 1} boundaries, not {len(boundaries)}"
        )
    base = document.get("base") or ""
    if not isinstance(base, str) or len(base) > 500:
        raise _wrong("base", base, "a model's name")
    return Export(stage_count, boundaries, _codecs(split.get("codecs")), _quantization(document), base)


def _boundaries(numbers: Any) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not all(map(_is_count, numbers)) or len(numbers) > LAYERS_MAX:
        raise _wrong("split.boundaries", numbers, "layers")
    if any(number < 1 for number in numbers) or numbers != sorted(set(numbers)):
        raise _wrong("split.boundaries", numbers, "layers that rise from 1")
    return tuple(numbers)


def _codecs(codecs: Any) -> tuple[str, ...]:
    """null, "" and "none" are no code."""
    if codecs is None:
        return ()
    if not isinstance(codecs, list) or len(codecs) > LAYERS_MAX:
        raise _wrong("split.codecs", codecs, "names of codecs")
    plain = ["" if codec in (None, "none") else codec for codec in codecs]
    for codec in plain:
        if not isinstance(codec, str) or codec not in ("", *CODECS):
            raise BadRequest(
                f"{MANIFEST_NAME}: a boundary is coded as {str(codec)[:40]!r}, which is not served; served are "
                f"{', '.join(CODECS)}",
                field="source",
            )
    return tuple(plain)


def _quantization(document: dict[str, Any]) -> str:
    """A method's name, or an object of method, bits and backend."""
    said = document.get("quantization") or {}
    if isinstance(said, str):
        said = {"method": said}
    if not isinstance(said, dict):
        raise _wrong("quantization", said, "an object")
    method, bits, backend = said.get("method") or "", said.get("bits") or 0, said.get("backend") or ""
    if not isinstance(method, str) or not isinstance(backend, str) or not _is_count(bits):
        raise _wrong("quantization", said, "method, bits and backend")
    return method_of(method, bits, backend)


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _wrong(key: str, value: Any, kind: str) -> ServableCorrupt:
    return ServableCorrupt(f"{MANIFEST_NAME}: {key} is {str(value)[:60]}, not {kind}")
