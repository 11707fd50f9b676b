"""A GGUF file to a Hugging Face folder in float32.

Names, permutations and config come from transformers' own tables, values from gguf's own dequantisation, so every
tensor is the one transformers' `from_pretrained(gguf_file=...)` gives. That path takes 25 s for a 98 MB file, of which
dequantising is 1 s: it parses the vocabulary three times through numpy views and builds the table of tensor names
once per module. Here each is done once (under 5 s). Not here: quantising, and architectures that are not served.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, dequantize
from swarm_core.errors import CapabilityMissing, ServableCorrupt, SwarmError
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf import GgufHeader, read_gguf_metadata
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from swarm_stage.convert.gguf_header import check_gguf
from swarm_stage.convert.safetensors_stream import SafetensorsWriter
from swarm_stage.model.families import check_servable
from swarm_stage.model.skeleton import causal_lm_class

_MODEL_TYPES = {"gemma3": "gemma3_text"}  # where a GGUF architecture is not named as the model type
_CONFIG_KEYS: dict[str, Any] = GGUF_CONFIG_MAPPING
_TOKENIZER_KEYS = {f"tokenizer.{key}": name for key, name in _CONFIG_KEYS["tokenizer"].items()}
_END_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


Tell = Callable[[str, int, int], None]  # step, done, total


def convert(source: Path, folder: Path, tell: Tell) -> None:
    """Write config.json, generation_config.json, the tokenizer and model.safetensors (last) into `folder`.

    Holds one tensor at a time.
    Raises ServableCorrupt when `source` is no GGUF file or damaged, CapabilityMissing when it is not served.
    """
    tell("header", 0, 1)
    check_gguf(source)
    try:
        metadata, tensor_names = read_gguf_metadata(str(source))
        config = _config(metadata, tensor_names)
        tell("header", 1, 1)
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "config.json", _config_document(config))
        _write_json(folder / "generation_config.json", _generation_config(config))
        tell("tokenizer", 0, 1)
        _convert_tokenizer(source, folder)
        tell("tokenizer", 1, 1)
        _convert_tensors(source, folder / "model.safetensors", metadata["general.architecture"], config, tell)
    except (SwarmError, OSError):
        raise
    except Exception as error:  # whatever damaged bytes provoke in parsers written elsewhere
        raise ServableCorrupt(f"{source} cannot be read as GGUF: {error or type(error).__name__}") from error


def _convert_tokenizer(source: Path, folder: Path) -> None:
    """Write the tokenizer the file describes, and nothing of what lies beside it: a folder of downloads is anyone's."""
    alone = folder / "tokenizer-source"
    alone.mkdir()
    try:
        (alone / "model.gguf").symlink_to(source.resolve())
        PreTrainedTokenizerFast.from_pretrained(alone, gguf_file="model.gguf").save_pretrained(folder)
    finally:
        shutil.rmtree(alone)


def _config(metadata: dict[str, Any], tensor_names: tuple[str, ...]) -> PreTrainedConfig:
    """The model's config from the file's metadata, by transformers' table of keys."""
    architecture = metadata["general.architecture"]
    is_mistral = architecture == "llama" and "mistral" in str(metadata.get("general.name", ""))
    model_type = "mistral" if is_mistral else _MODEL_TYPES.get(architecture, architecture)
    keys = _CONFIG_KEYS.get("mistral" if is_mistral else architecture)
    if keys is None:
        raise CapabilityMissing(f"GGUF files of architecture {architecture!r} are not supported")
    values: dict[str, Any] = {"model_type": model_type, "tie_word_embeddings": "output.weight" not in tensor_names}
    for key, name in {**{f"{architecture}.{key}": name for key, name in keys.items()}, **_TOKENIZER_KEYS}.items():
        if name is not None and name != -1 and key in metadata:
            values[name] = metadata[key]
    values.setdefault("vocab_size", metadata.get("tokenizer.ggml.tokens"))  # the reader leaves its length
    values = check_servable(values)
    if values["num_hidden_layers"] > len(tensor_names):
        raise ServableCorrupt(f"{len(tensor_names)} tensors cannot be {values['num_hidden_layers']} layers")
    return CONFIG_MAPPING[model_type].from_dict(values)


def _config_document(config: PreTrainedConfig) -> dict[str, Any]:
    """config.json, also with what equals transformers' defaults: a reader without them must understand it."""
    shown = {key: value for key, value in config.to_dict().items() if not key.startswith("_")}
    class_name = causal_lm_class(config).__name__
    return {**shown, "architectures": [class_name], "dtype": "float32"}


def _generation_config(config: PreTrainedConfig) -> dict[str, Any]:
    """What a GGUF knows of generation: its special tokens."""
    known = {name: getattr(config, name, None) for name in _END_TOKENS}
    return {name: token_id for name, token_id in known.items() if token_id is not None}


def _convert_tensors(source: Path, target: Path, architecture: str, config: PreTrainedConfig, tell: Tell) -> None:
    """Dequantise tensor by tensor. Raises ServableCorrupt when the model needs one the file does not hold."""
    shapes = _expected_shapes(config)
    processor = TENSOR_PROCESSORS.get(architecture, TensorProcessor)(config=config.to_dict())
    names = get_gguf_hf_weights_map(_NamesOnly(config, shapes), processor, model_type=architecture)
    missing = set(shapes)
    with SafetensorsWriter(target, shapes) as writer:
        for gguf_name, stored, kind in _stored_tensors(source):
            taken = processor.process(
                weights=dequantize(stored, kind),
                name=gguf_name,
                tensor_key_mapping=names,
                parsed_parameters={"config": config.to_dict(), "tensors": {}},
            )
            name = names.get(taken.name)
            if name in missing:
                writer.write(name, np.ascontiguousarray(taken.weights, dtype=np.float32))
                missing.remove(name)
                tell("weights", writer.done_bytes, writer.total_bytes)
        if missing:
            raise ServableCorrupt(f"{source} holds no {', '.join(sorted(missing)[:5])}")


def _expected_shapes(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the checkpoint; a tied head is none."""
    with torch.device("meta"):
        model = causal_lm_class(config)(config)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


class _NamesOnly:
    """As much of a model as transformers' table of names looks at: without submodules it is built once."""

    def __init__(self, config: PreTrainedConfig, shapes: dict[str, tuple[int, ...]]) -> None:
        self.config = config
        self._shapes = shapes

    def state_dict(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    def named_children(self) -> list[Any]:
        return []


def _stored_tensors(source: Path) -> Iterator[tuple[str, np.ndarray, GGMLQuantizationType]]:
    """Name, bytes as gguf's dequantisation wants them, and kind of each tensor in the file."""
    try:
        header = GgufHeader.from_file(str(source))
    except ValueError:  # a quantisation transformers' reader does not know; gguf's reads it, 4 s slower
        yield from ((tensor.name, tensor.data, tensor.tensor_type) for tensor in GGUFReader(source).tensors)
        return
    blob = np.memmap(source, mode="r", dtype=np.uint8)
    for entry in header.tensors:
        begin = header.data_start + entry.offset
        if begin + entry.nbytes > len(blob):
            raise ServableCorrupt(f"{source} ends inside tensor {entry.name}")
        stored = np.asarray(blob[begin : begin + entry.nbytes]).reshape(*entry.shape[:-1], -1)
        yield entry.name, stored, GGMLQuantizationType(entry.ggml_type)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def _tell_on_stdout(step: str, done: int, total: int) -> None:
    print(json.dumps({"step": step, "done": done, "total": total}), flush=True)


def run(source: Path, folder: Path) -> int:
    """Convert, and tell how it goes. The exit code: 0, 1 the disk refused, 2 not served, with one line on stderr."""
    try:
        convert(source, folder, _tell_on_stdout)
    except SwarmError as error:
        print(" ".join(error.message.split()), file=sys.stderr)
        return 2
    except FileNotFoundError:
        print(f"{source} does not exist", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"cannot convert {source}: {error}", file=sys.stderr)
        return 1
    return 0
