"""JSON that others wrote, read within bounds: bytes, how many values, how deep. Decides nothing about what it says."""

import json
from typing import Any

from swarm_core.errors import ServableCorrupt

# A value of a parsed document takes up to about 100 bytes of memory, so this is some 100 MB at most.
VALUES_MAX = 1_000_000


def read_json_object(raw: bytes, name: str, bytes_max: int, values_max: int = VALUES_MAX) -> dict[str, Any]:
    """The JSON object in `raw`; name: of the file, for the refusal.

    Refused before it is parsed when it is longer than bytes_max, or has more brackets and commas than values_max.
    Raises ServableCorrupt, also when a key is there twice: two readers would understand it differently.
    """
    if len(raw) > bytes_max:
        raise ServableCorrupt(f"{name} has {len(raw)} bytes, more than {bytes_max}")
    values = raw.count(b",") + raw.count(b"[") + raw.count(b"{")  # counts those inside texts as well: a bound
    if values > values_max:
        raise ServableCorrupt(f"{name} has about {values} values, more than {values_max}")
    try:
        document = json.loads(raw, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ServableCorrupt(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServableCorrupt(f"{name} is not a JSON object")
    return document


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"{twice[:100]!r} appears twice")
    return document
