"""One slice of SmolLM2 against transformers on the same weights, side by side in one process. No ring, no server.

    OMP_NUM_THREADS=1 .venv/bin/python -m tests.bench.lean_decode MODELS_ROOT [--pairs 5]

Prints ratios (ours / reference) of tokens per second: the median of alternating pairs, and every pair. Run it on a
quiet machine; the load average at the start and the end is printed.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.lean.slice import LeanSlice

from tests.models import load_reference, read_config, split_tensors

MODEL = "SmolLM2-135M-Instruct"
PROMPT_TOKENS = 64
NEW_TOKENS = 48
STREAMS = 8
PIECE_TOKENS = 256


def prompt_of(length: int) -> list[int]:
    """Fixed token ids."""
    return [(7919 * (index + 3)) % 49_000 + 20 for index in range(length)]


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


class Ours:
    """A whole model as one slice."""

    def __init__(self, model: LeanSlice) -> None:
        self._model = model

    def decode(self) -> float:
        """Tokens per second of one stream, greedy, after its prompt."""
        model, cache = self._model, self._model.new_cache()
        hidden_BTD = model.run(model.embed(prompt_of(PROMPT_TOKENS)), cache, 0)
        tokens = [int(model.logits(hidden_BTD).argmax())]

        def go_on() -> None:
            for step in range(NEW_TOKENS - 1):
                hidden = model.run(model.embed(tokens[-1:]), cache, PROMPT_TOKENS + step)
                tokens.append(int(model.logits(hidden).argmax()))

        return (NEW_TOKENS - 1) / seconds(go_on)

    def decode_streams(self) -> float:
        """Tokens per second of all streams together; every stream has a prompt of its own length."""
        model = self._model
        caches = [model.new_cache() for _ in range(STREAMS)]
        tokens = []
        for stream, cache in enumerate(caches):
            hidden_BTD = model.run(model.embed(prompt_of(PROMPT_TOKENS - stream)), cache, 0)
            tokens.append(int(model.logits(hidden_BTD).argmax()))

        def go_on() -> None:
            nonlocal tokens
            for _ in range(NEW_TOKENS - 1):
                hidden_B1D = model.embed(tokens).transpose(0, 1)
                hidden_B1D = model.run_batch(hidden_B1D, caches, [cache.length for cache in caches])
                tokens = model.logits_batch(hidden_B1D).argmax(-1).tolist()

        return STREAMS * (NEW_TOKENS - 1) / seconds(go_on)

    def prefill(self, length: int) -> float:
        """Prompt tokens per second, in pieces as a ring sends them."""
        model, cache, prompt = self._model, self._model.new_cache(), prompt_of(length)

        def run() -> None:
            for start in range(0, length, PIECE_TOKENS):
                hidden_BTD = model.run(model.embed(prompt[start : start + PIECE_TOKENS]), cache, start)
            model.logits(hidden_BTD)

        return length / seconds(run)


class Reference:
    """transformers' own generate and forward."""

    def __init__(self, folder: Path) -> None:
        self._model = load_reference(folder)

    def decode(self, streams: int = 1, prompt_tokens: int = PROMPT_TOKENS, new_tokens: int = NEW_TOKENS) -> float:
        """Tokens per second after the prompt, all streams together."""
        ids = torch.tensor([prompt_of(prompt_tokens)] * streams)

        def run(count: int) -> float:
            lengths = {"min_new_tokens": count, "max_new_tokens": count}
            mask = torch.ones_like(ids)
            return seconds(lambda: self._model.generate(ids, attention_mask=mask, do_sample=False, **lengths))

        first_s = run(1)
        return streams * (new_tokens - 1) / (run(new_tokens) - first_s)

    def prefill(self, length: int) -> float:
        """Prompt tokens per second of one forward."""
        ids = torch.tensor([prompt_of(length)])
        with torch.inference_mode():
            return length / seconds(lambda: self._model(ids, logits_to_keep=1))


def compare(name: str, ours: Callable[[], float], reference: Callable[[], float], pairs: int) -> None:
    """Alternate, and print the median of the ratios."""
    ours(), reference()  # warm both up
    rates = [(ours(), reference()) for _ in range(pairs)]
    ratios = [mine / theirs for mine, theirs in rates]
    median_rates = [statistics.median(rate) for rate in zip(*rates, strict=True)]
    listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{name:34} {statistics.median(ratios):5.2f} x   {median_rates[0]:7.1f} / {median_rates[1]:7.1f} t/s   {listed}"
    )


def hugging_face_folder(servable: Path, folder: Path) -> Path:
    """Links that make a servable one folder, as transformers wants it."""
    for path in [*servable.glob("*.json"), *(servable / "base").iterdir()]:
        if path.name != "servable.json":
            (folder / path.name).symlink_to(path.resolve())
    return folder


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models_root", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    print(f"threads {torch.get_num_threads()}, torch {torch.__version__}, load {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        hugging_face_folder(arguments.models_root / MODEL, folder)
        config = read_config(folder)
        layers = LayerRange(0, config["num_hidden_layers"], config["num_hidden_layers"])
        files = split_tensors(folder, Path(scratch) / "tensors")
        model = build_slice(config, layers, files, Holding("F32"), lambda done, total: None)
        assert isinstance(model, LeanSlice)
        ours, reference = Ours(model), Reference(folder)
        with torch.inference_mode():
            compare("decode, one stream", ours.decode, reference.decode, arguments.pairs)
            streams = f"decode, {STREAMS} streams"
            compare(streams, ours.decode_streams, lambda: reference.decode(STREAMS), arguments.pairs)
            for length in (512, 1500):
                name = f"prefill, {length} tokens"
                compare(name, lambda n=length: ours.prefill(n), lambda n=length: reference.prefill(n), arguments.pairs)
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
