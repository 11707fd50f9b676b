"""A servable whose weights stay on a hub, from what the child process read of them. Writes small files, a manifest."""

from pathlib import Path
from typing import Any

from swarm_core.errors import ServableCorrupt
from swarm_core.json_bounds import read_json_object
from swarm_core.manifest import MANIFEST_BYTES_MAX, Manifest, TensorEntry
from swarm_core.servable_parts import HubOrigin

from swarm_leader.catalog.assemble import write_servable
from swarm_leader.catalog.files import read_small
from swarm_leader.catalog.sources.checkpoint import read_checkpoint
from swarm_leader.catalog.sources.header import TensorSpan

READ_NAME = "weights-read.json"  # what the child leaves beside the small files: {file: {tensor: span and hash}}
READ_BYTES_MAX = MANIFEST_BYTES_MAX


def write_reference(
    folder: Path, servable: Path, model_id: str, origin: HubOrigin, extra: dict[str, str], created_s: int
) -> Manifest:
    """Make and fill `servable` from the small files in `folder` and what was read of the weights.

    Raises BadRequest for what is not served, ServableCorrupt for what does not fit together, DiskFull.
    """
    read = read_json_object(read_small(folder / READ_NAME, READ_BYTES_MAX), READ_NAME, READ_BYTES_MAX)
    try:
        spans = {file: {name: _span(facts) for name, facts in tensors.items()} for file, tensors in read.items()}
        hashes = {(file, span): read[file][name]["sha256"] for file in spans for name, span in spans[file].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ServableCorrupt(f"{READ_NAME} cannot be read: {error}") from error
    checkpoint = read_checkpoint(folder, spans, lambda file: spans[file])
    tensors = {
        name: TensorEntry(
            weight.file,
            weight.span.begin,
            weight.span.size_bytes,
            weight.span.dtype,
            weight.span.shape,
            hashes[weight.file, weight.span],
        )
        for name, weight in checkpoint.weights.items()
    }
    servable.mkdir()
    return write_servable(checkpoint, servable, model_id, tensors, extra, origin.repository, created_s, origin=origin)


def span_facts(span: TensorSpan, sha256: str) -> dict[str, Any]:
    """One tensor as it stands in READ_NAME."""
    return {
        "begin": span.begin,
        "size_bytes": span.size_bytes,
        "dtype": span.dtype,
        "shape": span.shape,
        "sha256": sha256,
    }


def _span(facts: dict[str, Any]) -> TensorSpan:
    return TensorSpan(facts["begin"], facts["size_bytes"], facts["dtype"], tuple(facts["shape"]))
