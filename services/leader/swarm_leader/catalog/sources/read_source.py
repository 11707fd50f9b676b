"""What a folder holds, and looking at it accordingly: an export with shards, a LoRA adapter or a plain checkpoint."""

from collections.abc import Mapping
from pathlib import Path

from swarm_core.errors import BadRequest
from swarm_core.manifest import Manifest

from swarm_leader.catalog.sources.adapter import Adapter, is_adapter, read_adapter
from swarm_leader.catalog.sources.checkpoint import Checkpoint, read_checkpoint
from swarm_leader.catalog.sources.export import read_export
from swarm_leader.catalog.sources.export_json import SHARDS_NAME
from swarm_leader.catalog.sources.small_files import names_in


def read_source(folder: Path, asked_base: str, models: Mapping[str, Manifest]) -> Checkpoint | Adapter:
    """Look at a folder. asked_base: id of the base of an adapter, "" as it says itself; models: what the catalog has.

    Raises BadRequest for what is not served, ServableCorrupt for what is damaged.
    """
    names = names_in(folder)
    if SHARDS_NAME in names and (folder / SHARDS_NAME).is_dir():
        return read_export(folder, asked_base, models)
    if is_adapter(names):
        return read_adapter(folder, asked_base, models)
    if asked_base:
        raise BadRequest("the source is a whole model; a base belongs to a LoRA adapter", field="base_model_id")
    return read_checkpoint(folder)
