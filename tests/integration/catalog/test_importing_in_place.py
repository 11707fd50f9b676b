"""Whose place an import takes under an id that the catalog has already."""

from pathlib import Path

import pytest
from swarm_core.errors import Conflict
from swarm_core.manifest import Manifest
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.importer import Importer

from tests.integration.catalog.checkpoints import nobody_listens
from tests.servables import make_adapter_folder


async def bring(root: Path, source: Path, model_id: str) -> Manifest:
    return await Importer(root).import_source(str(source), model_id, "", nobody_listens)


async def test_an_adapter_never_takes_the_place_of_a_whole_model_nor_the_other_way_round(
    root: Path, catalog: DiskCatalog, tmp_path: Path
):
    checkpoint = tmp_path / "source"  # of org/tiny in the catalog
    folder = make_adapter_folder(checkpoint, tmp_path / "a", 2, 1, base="org/tiny")
    with pytest.raises(Conflict, match="org/tiny is a whole model in the catalog, and this source is an adapter"):
        await bring(root, folder, "org/tiny")
    await bring(root, folder, "tuned")
    with pytest.raises(Conflict, match="tuned is an adapter in the catalog, and this source is a whole model"):
        await bring(root, checkpoint, "tuned")

    again = make_adapter_folder(checkpoint, tmp_path / "b", 4, 2, base="org/tiny")
    assert (await bring(root, again, "tuned")).adapter.rank == 4
    catalog.refresh()
    assert (list(catalog.manifests()), catalog.broken()) == (["org/tiny", "tuned"], {})
