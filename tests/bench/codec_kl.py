"""What coded boundaries do to a model: KL of next-token distributions, perplexity, replies, bytes, microseconds.

    OMP_NUM_THREADS=1 .venv/bin/python -m tests.bench.codec_kl [--models-root FOLDER] [--ring]

SmolLM2 with the boundaries of rings of two and of three stages, as many layers on each, against the same model without:
in one process, which computes bit for bit what the ring does (tests/integration/ring/test_codecs.py). The text is
codec_text.txt, each position given all before it. --ring also asks real rings for the bytes their timing tells. Prints
Markdown.
"""

import argparse
import asyncio
import tempfile
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from silentswarm.core.v1 import stage_pb2
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.slice_model import SliceModel
from swarm_wire.codecs import CODECS, SCALE_BYTES, check_coded, decode, encode, encode_rows, row_bytes
from tokenizers import Tokenizer

from tests.bench import conditions
from tests.bench.lean_decode import hugging_face_folder
from tests.bench.settings import Settings
from tests.integration.ring.stages import StageRing, greedy
from tests.models import even_ranges, read_config, split_tensors

PIECE_TOKENS = 256
REPLY_TOKENS = 64
QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a lighthouse.",
    "List four fruits and say what colour each is.",
)
SWEEP_LAYERS = (1, 5, 10, 15, 19, 25, 29)  # 19: where the leader cuts for two equal machines
WIDTHS = (576, 2048, 5120)
ROWS = (1, 8)


@dataclass(frozen=True)
class Smol:
    """The model on disk, and what is asked of it."""

    config: dict
    files: Mapping[str, str]
    text_ids: list[int]
    prompts: list[list[int]]

    def built(self, inner_codecs: Mapping[int, str]) -> SliceModel:
        """The whole model with boundaries inside."""
        layers = LayerRange(0, self.config["num_hidden_layers"], self.config["num_hidden_layers"])
        return build_slice(
            self.config, layers, self.files, Holding("F32"), lambda done, total: None, inner_codecs=inner_codecs
        )


@dataclass(frozen=True)
class Effect:
    """Of boundaries on text and replies. kl_T: nats a position. replies_alike: tokens before each reply differs."""

    kl_T: torch.Tensor
    is_same_T: torch.Tensor
    perplexity: float
    replies_alike: list[int]

    def row(self, *first: str) -> str:
        """Of a Markdown table."""
        kl = self.kl_T
        cells = [
            *first,
            f"{kl.mean():.2e}",
            f"{kl.median():.2e}",
            f"{kl.quantile(0.99):.2e}",
            f"{kl.max():.2e}",
            f"{self.is_same_T.float().mean():.2%}",
            f"{self.perplexity:.3f}",
            ", ".join(map(str, self.replies_alike)) or "-",
        ]
        return f"| {' | '.join(cells)} |"


def read_smol(servable: Path, folder: Path, scratch: Path) -> Smol:
    """The model in a Hugging Face folder, text and questions in the tokens of the servable it is of."""
    tokenizer = Tokenizer.from_file(str(servable / "tokenizer" / "tokenizer.json"))
    text = (Path(__file__).parent / "codec_text.txt").read_text()
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids
        for question in QUESTIONS
    ]
    return Smol(read_config(folder), split_tensors(folder, scratch), tokenizer.encode(text).ids, prompts)


def log_probabilities(model: SliceModel, ids: list[int]) -> torch.Tensor:
    """log_TV of the token behind each, in pieces as a ring sends a prompt."""
    cache, logits = model.new_cache(), []
    for start in range(0, len(ids), PIECE_TOKENS):
        hidden_1TD = model.run(model.embed(ids[start : start + PIECE_TOKENS]), cache, start)
        logits.append(model.logits_batch(hidden_1TD.transpose(0, 1)))
    return torch.cat(logits).log_softmax(dim=-1)


def reply(model: SliceModel, prompt: list[int]) -> list[int]:
    """Greedy, to its full length."""
    cache, ids = model.new_cache(), list(prompt)
    hidden_BTD = model.run(model.embed(ids), cache, 0)
    for _ in range(REPLY_TOKENS):
        ids.append(int(model.logits(hidden_BTD).argmax()))
        hidden_BTD = model.run(model.embed(ids[-1:]), cache, len(ids) - 1)
    return ids[len(prompt) :]


def perplexity(log_TV: torch.Tensor, ids: list[int]) -> float:
    """Of the text behind its first token."""
    said_T = log_TV[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return float((-said_T.double().mean()).exp())


def effect(smol: Smol, inner_codecs: Mapping[int, str], want_TV: torch.Tensor, want: list[list[int]]) -> Effect:
    """Boundaries against none, whose log-probabilities and replies are given; no replies asks for none."""
    model = smol.built(inner_codecs)
    log_TV = log_probabilities(model, smol.text_ids)
    kl_T = torch.stack(
        [(p.double().exp() * (p.double() - q.double())).sum() for p, q in zip(want_TV, log_TV, strict=True)]
    ).clamp_(min=0)
    replies = [reply(model, prompt) for prompt, _ in zip(smol.prompts, want, strict=False)]
    alike = [
        next((place for place, pair in enumerate(zip(*both, strict=True)) if pair[0] != pair[1]), REPLY_TOKENS)
        for both in zip(replies, want, strict=True)
    ]
    return Effect(kl_T, log_TV.argmax(-1) == want_TV.argmax(-1), perplexity(log_TV, smol.text_ids), alike)


def print_effects(smol: Smol) -> None:
    """The tables of two and three stages, and of one boundary at several layers."""
    plain = smol.built({})
    want_TV, want = log_probabilities(plain, smol.text_ids), [reply(plain, prompt) for prompt in smol.prompts]
    print(f"\nText: {len(smol.text_ids)} tokens, perplexity without codes {perplexity(want_TV, smol.text_ids):.3f}.")
    columns = "KL mean | median | p99 | max | same best token | perplexity"
    print(f"\n| stages | codec | {columns} | reply tokens before the first other one, of {REPLY_TOKENS} |")
    print("|---" * 9 + "|")
    for stages in (2, 3):
        cut = even_ranges(smol.config["num_hidden_layers"], stages)
        told = f"{stages} ({' + '.join(str(layers.layer_stop - layers.layer_start) for layers in cut)} layers)"
        for codec in CODECS:
            boundaries = {layers.layer_start: codec for layers in cut[1:]}
            print(effect(smol, boundaries, want_TV, want).row(told, codec), flush=True)
    print(f"\n| one boundary in front of layer | codec | {columns} | - |")
    print("|---" * 9 + "|")
    for layer in SWEEP_LAYERS:
        for codec in CODECS:
            print(effect(smol, {layer: codec}, want_TV, []).row(str(layer), codec), flush=True)


def best_us(work: Callable[[], object]) -> float:
    """Microseconds of the best of several rounds."""
    return min(timeit.repeat(work, number=100, repeat=20)) / 100 * 1e6


def print_costs() -> None:
    """Bytes of a hidden state on a link, and microseconds of coding it."""
    print("\n| width | rows | codec | bytes a row | of float32 | encode us | of a batch us | check us | decode us |")
    print("|---" * 9 + "|")
    for width in WIDTHS:
        for rows in ROWS:
            hidden_TD = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
            for codec in CODECS:
                coded, size = encode(codec, hidden_TD), row_bytes(codec, width) + SCALE_BYTES
                times = (
                    best_us(lambda codec=codec, hidden_TD=hidden_TD: encode(codec, hidden_TD)),
                    best_us(lambda codec=codec, hidden_TD=hidden_TD: encode_rows(codec, hidden_TD)),
                    best_us(lambda codec=codec, coded=coded, width=width: check_coded(coded, codec, width)),
                    best_us(lambda coded=coded: decode(coded)),
                )
                told = " | ".join(f"{time_us:.1f}" for time_us in times)
                print(f"| {width} | {rows} | {codec} | {size} | {size / width / 4:.1%} | {told} |", flush=True)


async def print_ring_bytes(folder: Path, prompt: list[int]) -> None:
    """What a real ring's timing tells of a token, for each codec."""
    print("\n| stages | codec | bytes a token (timing.bytes_per_token) | ms of compute a token, all stages |")
    print("|---" * 4 + "|")
    layer_count = read_config(folder)["num_hidden_layers"]
    for stages in (2, 3):
        starts = [layer_count * stage // stages for stage in range(1, stages)]
        for codec in ("", *CODECS):
            codecs = {start: codec for start in starts if codec}
            with tempfile.TemporaryDirectory() as scratch:
                async with StageRing(folder, Path(scratch), stages, is_forked=False, codecs=codecs) as ring:
                    await ring.wire(stage_pb2.ROUTE_DIRECT)
                    events = [event async for event in ring.generate(greedy(prompt, 32))]
            timing = events[-1].done.timing
            told = f"{timing.bytes_per_token:.0f} | {sum(timing.stage_ms):.1f}"
            print(f"| {stages} | {codec or 'none'} | {told} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-root", type=Path, default=Path(".swarm/test-models"))
    parser.add_argument("--ring", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    servable = Settings(1, arguments.models_root).servable
    print("\n".join([*conditions.machine(), f"load {conditions.load()}"]))
    print_costs()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        hugging_face_folder(servable, folder)
        smol = read_smol(servable, folder, Path(scratch) / "tensors")
        print_effects(smol)
        if arguments.ring:
            asyncio.run(print_ring_bytes(folder, smol.prompts[0]))
    print(f"\nload at the end {conditions.load()}")


if __name__ == "__main__":
    main()
