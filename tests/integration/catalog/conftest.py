"""A servables root with one imported model."""

from pathlib import Path

import pytest
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.importer import Importer

from tests.integration.catalog.checkpoints import nobody_listens, write_checkpoint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where servables live."""
    return tmp_path / "servables"


@pytest.fixture
async def catalog(root: Path, tmp_path: Path) -> DiskCatalog:
    """A catalog with the model org/tiny."""
    source = write_checkpoint(tmp_path / "source")
    await Importer(root).import_source(str(source), "org/tiny", "", nobody_listens)
    catalog = DiskCatalog(root)
    catalog.refresh()
    return catalog
