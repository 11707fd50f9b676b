"""A GGUF file as an attack: refused with the reason, within bounds, whatever its header claims."""

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swarm_core.errors import CapabilityMissing, LoadFailed, ServableCorrupt, SwarmError
from swarm_leader.catalog.steps import Step, run_step
from swarm_stage.convert.gguf import convert
from swarm_stage.convert.gguf_header import check_gguf

U32, F32, TEXT, LIST, U64 = 4, 6, 8, 9, 10


def quiet(step: str, done: int, total: int) -> None:
    """Progress nobody looks at."""


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A string as GGUF writes it; length: what it claims."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def fact(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def listed(kind: int, count: int, elements: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + elements


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def tensor(name: str | bytes = "a.weight", shape: tuple[int, ...] = (32,), kind: int = 0, begin: int = 0) -> bytes:
    return (
        text(name)
        + u32(len(shape))
        + b"".join(struct.pack("<Q", extent) for extent in shape)
        + struct.pack("<IQ", kind, begin)
    )


LLAMA = fact("general.architecture", TEXT, text("llama"))


def header(
    *parts: bytes,
    tensors: int | None = None,
    facts: int | None = None,
    version: int = 3,
    magic: bytes = b"GGUF",
    body: bytes = bytes(256),
    listed_tensors: tuple[bytes, ...] = (),
) -> bytes:
    """A file with these facts and tensors, honest about their number unless told otherwise."""
    counts = (len(listed_tensors) if tensors is None else tensors, len(parts) if facts is None else facts)
    raw = magic + struct.pack("<IQQ", version, *counts) + b"".join(parts) + b"".join(listed_tensors)
    return raw + bytes(-len(raw) % 32) + body


HOSTILE: list[tuple[str, bytes, str]] = [
    ("no magic", header(LLAMA, magic=b"GGML"), "does not begin as one"),
    ("a pickle", b"\x80\x02}q\x00." * 20, "does not begin as one"),
    ("version 1", header(LLAMA, version=1), "of version 1"),
    ("other end first", header(LLAMA, version=3 << 24), "of version"),
    ("2^63 tensors", header(LLAMA, tensors=2**63), "claims 9223372036854775808 tensors"),
    ("2^64 facts", header(LLAMA, facts=2**64 - 1), "and 18446744073709551615 facts"),
    ("50 001 tensors", header(LLAMA, tensors=50_001), "claims 50001 tensors"),
    ("more facts than there are", header(LLAMA, facts=9), "inside its header|the key b''"),
    ("key of 2^60", header(text("a", 2**60)), "a text of 1152921504606846976 bytes"),
    ("key of 2^63", header(text("a", 2**63)), "a text of"),
    ("key with a zero", header(fact(b"a\0b", U32, u32(1))), "or is none"),
    ("key twice", header(LLAMA, LLAMA), "there twice"),
    ("text beyond the end", header(fact("a", TEXT, text("b", 10**6))), "inside its header"),
    ("text of 5 MB", header(fact("a", TEXT, text("b" * 5_000_000))), "a text of 5000000 bytes"),
    ("list of 2^63", header(fact("a", LIST, listed(U32, 2**63))), "elements"),
    ("list of 2^61 wide ones", header(fact("a", LIST, listed(U64, 2**61))), "elements"),
    ("vocabulary of a billion", header(fact("tokens", LIST, listed(TEXT, 10**9))), "1000000000 elements"),
    ("list beyond the end", header(fact("a", LIST, listed(U64, 10**6))), "inside its header"),
    ("many lists", header(*(fact(f"{n}", LIST, listed(0, 3_000_000, bytes(3_000_000))) for n in range(3))), "elements"),
    ("lists in lists", header(fact("a", LIST, listed(LIST, 1, listed(LIST, 1)))), "lists of lists"),
    ("unknown kind", header(fact("a", 13, u32(1))), "of type 13"),
    ("unknown kind in a list", header(fact("a", LIST, listed(99, 1))), "of type 99"),
    ("token of 5 kB", header(fact("a", LIST, listed(TEXT, 1, text("x" * 5000)))), "a text of 5000 bytes"),
    ("alignment 0", header(fact("general.alignment", U32, u32(0))), "not a power of two"),
    ("alignment 3", header(fact("general.alignment", U32, u32(3))), "not a power of two"),
    ("alignment 2^31", header(fact("general.alignment", U32, u32(2**31))), "not a power of two"),
    ("alignment a text", header(LLAMA, fact("general.alignment", TEXT, text("32"))), "not a power of two"),
    ("tensor of 5 dimensions", header(LLAMA, listed_tensors=(tensor(shape=(2,) * 5),)), "has 5 dimensions"),
    ("tensor of 2^32 dimensions", header(text("a") + u32(2**32 - 1), facts=0, tensors=1), "has 4294967295 dimensions"),
    ("tensor of none", header(LLAMA, listed_tensors=(tensor(shape=()),)), "has 0 dimensions"),
    ("extent 0", header(LLAMA, listed_tensors=(tensor(shape=(32, 0)),)), "has shape"),
    ("extents that overflow", header(LLAMA, listed_tensors=(tensor(shape=(2**32, 2**32)),)), "has shape"),
    ("extent 2^64", header(LLAMA, listed_tensors=(tensor(shape=(2**64 - 1,)),)), "has shape"),
    ("half a block", header(LLAMA, listed_tensors=(tensor(shape=(31,), kind=2),)), "has shape"),
    ("unknown type", header(LLAMA, listed_tensors=(tensor(kind=777),)), "of type 777"),
    ("removed type", header(LLAMA, listed_tensors=(tensor(kind=4),)), "of type 4"),
    ("beyond the end", header(LLAMA, listed_tensors=(tensor(shape=(10**6,)),)), "would end at 4000000 of 256 bytes"),
    ("offset 2^63", header(LLAMA, listed_tensors=(tensor(begin=2**63),)), "would end at"),
    ("offset 2^64", header(LLAMA, listed_tensors=(tensor(begin=2**64 - 32),)), "would end at"),
    ("offset beside", header(LLAMA, listed_tensors=(tensor(begin=7),)), "begins at 7"),
    ("on each other", header(LLAMA, listed_tensors=(tensor(), tensor("b"))), "inside"),
    ("one twice", header(LLAMA, listed_tensors=(tensor(), tensor(begin=128))), "there twice"),
    ("a name that is a path", header(LLAMA, listed_tensors=(tensor("../../a"),)), "not a tensor's name"),
    ("a name for a terminal", header(LLAMA, listed_tensors=(tensor(b"\x1b[2J"),)), "not a tensor's name"),
    ("no end", header(LLAMA, tensors=1, body=b"")[:-3], "inside its header|not a tensor's name"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "words"), [entry[1:] for entry in HOSTILE], ids=[entry[0] for entry in HOSTILE])
def test_a_header_that_lies_is_refused_at_once_and_with_the_reason(tmp_path: Path, raw: bytes, words: str):
    (tmp_path / "a.gguf").write_bytes(raw)
    begun_s = time.monotonic()

    with pytest.raises(ServableCorrupt, match=words):
        convert(tmp_path / "a.gguf", tmp_path / "out", quiet)
    assert time.monotonic() - begun_s < 5
    assert not (tmp_path / "out").exists()


def test_a_header_that_is_honest_passes(tmp_path: Path):
    facts = (LLAMA, fact("general.alignment", U32, u32(64)), fact("b", LIST, listed(TEXT, 2, text("x") + text(""))))
    raw = header(*facts, listed_tensors=(tensor(), tensor("b", (32, 1), 2, 128)), body=bytes(512))
    (tmp_path / "a.gguf").write_bytes(raw)

    assert check_gguf(tmp_path / "a.gguf") is None


def test_an_empty_file_is_no_gguf(tmp_path: Path):
    for raw in (b"", b"GGU", b"GGUF", b"GGUF\x03"):
        (tmp_path / "a.gguf").write_bytes(raw)
        with pytest.raises(ServableCorrupt):
            check_gguf(tmp_path / "a.gguf")


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "a.gguf")

    with pytest.raises(ServableCorrupt, match="no plain file"):
        check_gguf(tmp_path / "a.gguf")


GOOD = header(
    LLAMA,
    fact("llama.block_count", U32, u32(1)),
    fact("tokenizer.ggml.tokens", LIST, listed(TEXT, 2, text("<s>") + text("a"))),
    fact("tokenizer.ggml.scores", LIST, listed(F32, 2, bytes(8))),
    listed_tensors=(tensor("token_embd.weight", (32, 2)), tensor("output_norm.weight", (32,), 0, 256)),
    body=bytes(512),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    position=st.integers(0, len(GOOD)),
    noise=st.binary(min_size=1, max_size=9),
    cut=st.none() | st.integers(0, len(GOOD)),
)
def test_a_damaged_header_is_walked_inside_its_bounds_or_refused(
    tmp_path: Path, position: int, noise: bytes, cut: int | None
):
    (tmp_path / "a.gguf").write_bytes((GOOD[:position] + noise + GOOD[position + len(noise) :])[:cut])

    try:
        assert check_gguf(tmp_path / "a.gguf") is None
    except ServableCorrupt as error:
        assert "GGUF" in error.message or "plain file" in error.message


def claims(tmp_path: Path, **numbers: Any) -> Path:
    """A well-formed file whose facts describe an absurd model."""
    facts: dict[str, tuple[int, Any]] = {
        "block_count": (U32, 1),
        "context_length": (U32, 64),
        "embedding_length": (U32, 32),
        "feed_forward_length": (U32, 32),
        "attention.head_count": (U32, 2),
        "attention.head_count_kv": (U32, 2),
        "attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }
    facts |= {
        key.replace("__", "."): (F32 if isinstance(value, float) else U32, value) for key, value in numbers.items()
    }
    packed = [
        fact(f"llama.{key}", kind, struct.pack("<f" if kind == F32 else "<I", value))
        for key, (kind, value) in facts.items()
    ]
    packed.append(fact("tokenizer.ggml.model", TEXT, text("llama")))
    packed.append(fact("tokenizer.ggml.tokens", LIST, listed(TEXT, 2, text("<s>") + text("a"))))
    packed.append(fact("tokenizer.ggml.scores", LIST, listed(F32, 2, bytes(8))))
    raw = header(LLAMA, *packed, listed_tensors=(tensor("token_embd.weight", (32, 2)),), body=bytes(256))
    (tmp_path / "a.gguf").write_bytes(raw)
    return tmp_path / "a.gguf"


@pytest.mark.parametrize(
    "numbers",
    [
        {"block_count": 2**31},
        {"block_count": 1000},
        {"block_count": 0},
        {"embedding_length": 2**31},
        {"feed_forward_length": 2**32 - 1},
        {"attention__head_count": 0},
        {"attention__head_count": 2**30},
        {"attention__head_count_kv": 0},
        {"context_length": 0},
        {"attention__layer_norm_rms_epsilon": float("nan")},
        {"rope__freq_base": float("inf")},
        {"rope__freq_base": -1.0},
        {"vocab_size": 2**31},
    ],
    ids=str,
)
def test_an_absurd_model_is_refused_before_anything_is_built(tmp_path: Path, numbers: dict[str, Any]):
    begun_s = time.monotonic()
    with pytest.raises((ServableCorrupt, CapabilityMissing)):
        convert(claims(tmp_path, **numbers), tmp_path / "out", quiet)

    assert time.monotonic() - begun_s < 20
    assert not list(tmp_path.glob("out/*.safetensors*"))


def test_what_lies_beside_the_file_has_no_part_in_the_tokenizer(tmp_path: Path):
    """A folder of downloads is anyone's: its tokenizer_config.json once went into the model."""
    evil = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "chat_template": "EVIL", "tokenizer_class": "Evil"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(evil))
    (tmp_path / "chat_template.jinja").write_text("EVIL")
    (tmp_path / "added_tokens.json").write_text('{"EVIL": 7}')
    with pytest.raises(SwarmError):  # its tensors are not all there; the tokenizer is written before that is seen
        convert(claims(tmp_path), tmp_path / "out", quiet)

    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert "tokenizer.json" in written and "tokenizer-source" not in written
    assert not [name for name, content in written.items() if "EVIL" in content or "evil" in content]


LIMITED = """
import sys
from pathlib import Path
from swarm_stage.convert import __main__ as entry
entry.limit(Path(sys.argv[1]))
import os, resource
{attack}
"""


def limited(tmp_path: Path, attack: str) -> list[str]:
    """The command of a converter that does this once its limits are set."""
    (tmp_path / "a.gguf").write_bytes(GOOD)
    return [sys.executable, "-c", LIMITED.format(attack=attack), str(tmp_path / "a.gguf")]


async def test_a_conversion_that_never_ends_is_ended_and_told(tmp_path: Path):
    command = limited(tmp_path, "resource.setrlimit(resource.RLIMIT_CPU, (1, 9))\nwhile True: pass")
    with pytest.raises(LoadFailed, match="killed by signal 24; it computed for longer than a file of its size"):
        async with asyncio.timeout(60):
            await run_step(Step("convert", command, needs="stage"), lambda line: None)


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("block = bytearray(64 * 2**30)", "MemoryError"),
        ("import torch; torch.empty(64 * 2**30, dtype=torch.uint8).fill_(1)", "memory"),
        ("out = open(sys.argv[1] + '.out', 'wb'); out.truncate(2**40)", "File too large"),
    ],
)
def test_a_conversion_that_takes_too_much_fails_alone(tmp_path: Path, attack: str, words: str):
    done = subprocess.run(limited(tmp_path, attack), capture_output=True, text=True, timeout=60)

    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_a_conversion_is_what_the_kernel_ends_first_and_fetches_nothing(tmp_path: Path):
    first = "print(Path('/proc/self/oom_score_adj').read_text())"
    attack = f"{first}\nimport huggingface_hub.constants as hub\nprint(hub.is_offline_mode())"
    done = subprocess.run(limited(tmp_path, attack), capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["1000", "True"], done.stderr


def test_a_stage_fetches_nothing_whatever_a_model_names():
    code = "import swarm_stage.__main__, huggingface_hub.constants as hub; print(hub.is_offline_mode())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)

    assert done.stdout.strip() == "True", done.stderr


def test_types_that_are_known_are_those_of_the_format():
    assert set(gguf.GGML_QUANT_SIZES) == set(gguf.GGMLQuantizationType)
