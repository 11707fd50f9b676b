"""A boundary of training inside a slice does to the hidden state what a coded link does, in every family."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from swarm_core.slices import LayerRange
from swarm_stage.model.build_slice import build_slice
from swarm_stage.model.holding import Holding
from swarm_stage.model.inner_codecs import InnerBoundary
from swarm_stage.model.lean.slice import LeanSlice
from swarm_stage.model.slice_model import SliceModel
from swarm_wire.codecs import CODECS, SCALE_MIN, decode, encode

from tests.models import FAMILIES, VOCABULARY, make_tiny_model, read_config, split_tensors
from tests.unit.stage_model.slices import run_greedy

EACH_CODEC = pytest.mark.parametrize("codec", CODECS)
LAYERS = 4
LARGEST = float(np.float32(3.3e38))
HIDDEN_STATES = st.tuples(st.integers(1, 4), st.integers(1, 20)).flatmap(
    lambda shape: arrays.arrays(np.float32, shape, elements=st.floats(-LARGEST, LARGEST, width=32))
)


def prompt_of(length: int) -> list[int]:
    return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny matrices are slower on more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def built(folder, start: int, stop: int, inner_codecs: dict[int, str], dtype: str = "F32") -> SliceModel:
    tensors = folder / "tensors"
    files = {path.stem: str(path) for path in tensors.glob("*")} or split_tensors(folder, tensors)
    layers = LayerRange(start, stop, LAYERS)
    return build_slice(
        read_config(folder), layers, files, Holding(dtype), lambda done, total: None, inner_codecs=inner_codecs
    )


class CodedLink:
    """A slice whose hidden state reached it over a coded link."""

    def __init__(self, part: SliceModel, codec: str) -> None:
        self._part = part
        self._codec = codec
        self.new_cache, self.logits = part.new_cache, part.logits

    def run(self, hidden_BTD: torch.Tensor, cache, pos: int) -> torch.Tensor:
        coded = encode(self._codec, hidden_BTD[0].float().numpy())
        return self._part.run(torch.from_numpy(decode(coded))[None].to(hidden_BTD.dtype), cache, pos)


@given(st.sampled_from(CODECS), HIDDEN_STATES)
def test_in_place_is_bit_for_bit_what_a_link_brings(codec, hidden_TD):
    here = InnerBoundary(codec)(torch.from_numpy(hidden_TD)).numpy()

    assert here.tobytes() == decode(encode(codec, hidden_TD)).tobytes()


@EACH_CODEC
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_a_batch_are_coded_each_by_its_own_scale_and_keep_their_type(codec, dtype):
    hidden_BTD = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(1)).mul(7).to(dtype)
    hidden_BTD[1] *= 100
    before = hidden_BTD.clone()
    boundary = InnerBoundary(codec)
    coded_BTD = boundary(hidden_BTD)
    alone = [decode(encode(codec, row_D[None].float().numpy())) for row_D in hidden_BTD.view(-1, 64)]

    assert coded_BTD.dtype is dtype and torch.equal(hidden_BTD, before)
    assert torch.equal(coded_BTD.view(-1, 64), torch.from_numpy(np.concatenate(alone)).to(dtype))
    assert torch.equal(boundary(coded_BTD.float()), coded_BTD.float()) or dtype is not torch.float32


@EACH_CODEC
def test_zeros_stay_zeros_and_what_is_not_finite_stays_in_its_row(codec):
    hidden_ND = torch.randn(3, 16)
    hidden_ND[0], hidden_ND[1, 4] = 0, torch.nan
    coded_ND = InnerBoundary(codec)(hidden_ND)

    assert not coded_ND[0].any() and SCALE_MIN > 0
    assert coded_ND[1].isnan().all()
    assert torch.equal(coded_ND[2], InnerBoundary(codec)(hidden_ND[2:])[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_boundary_inside_every_family_is_the_same_boundary_on_a_link(family, tmp_path):
    """Bit for bit for a lone session; int8 at one place, int4 at the other."""
    folder = make_tiny_model(family, tmp_path, layers=LAYERS)
    whole = [built(folder, 0, LAYERS, {2: "int8", 3: "int4"})]
    ring = [
        built(folder, 0, 2, {}),
        CodedLink(built(folder, 2, 3, {}), "int8"),
        CodedLink(built(folder, 3, LAYERS, {}), "int4"),
    ]
    half_inside = [built(folder, 0, 2, {}), CodedLink(built(folder, 2, LAYERS, {3: "int4"}), "int8")]
    uncoded_ids, uncoded_logits = run_greedy([built(folder, 0, LAYERS, {})], prompt_of(17), 4)
    want_ids, want_logits = run_greedy(whole, prompt_of(17), 4)

    for parts in (ring, half_inside):
        ids, logits = run_greedy(parts, prompt_of(17), 4)
        assert ids == want_ids
        assert all(torch.equal(*pair) for pair in zip(logits, want_logits, strict=True))
    assert not torch.equal(want_logits[0], uncoded_logits[0])
    assert len(uncoded_ids) == len(want_ids)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_a_boundary_in_half_precision_is_the_same_on_a_link(dtype, tmp_path):
    folder = make_tiny_model("llama", tmp_path, layers=LAYERS)
    whole = [built(folder, 0, LAYERS, {2: "int8"}, dtype)]
    ring = [built(folder, 0, 2, {}, dtype), CodedLink(built(folder, 2, LAYERS, {}, dtype), "int8")]
    ids, logits = run_greedy(ring, prompt_of(17), 4)
    want_ids, want_logits = run_greedy(whole, prompt_of(17), 4)

    assert ids == want_ids
    assert all(torch.equal(*pair) for pair in zip(logits, want_logits, strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_boundary_holds_in_decode_steps_of_several_sessions(family, tmp_path):
    """In one pass over the whole model, and with the same sessions in passes over two slices: bit for bit."""
    folder = make_tiny_model(family, tmp_path, layers=LAYERS)
    whole, halves = built(folder, 0, LAYERS, {2: "int8"}), [built(folder, 0, 2, {}), built(folder, 2, LAYERS, {})]
    assert isinstance(whole, LeanSlice) == (family == "llama")
    boundary = InnerBoundary("int8")
    prompts = [prompt_of(length) for length in (1, 5, 40)]
    caches = [[part.new_cache() for _ in prompts] for part in (whole, *halves)]
    for session, prompt in enumerate(prompts):
        whole.run(whole.embed(prompt), caches[0][session], 0)
        hidden_BTD = halves[0].run(halves[0].embed(prompt), caches[1][session], 0)
        halves[1].run(boundary(hidden_BTD), caches[2][session], 0)
    positions, embedded_B1D = [len(prompt) for prompt in prompts], whole.embed([7, 8, 9]).transpose(0, 1)
    want_BV = whole.logits_batch(whole.run_batch(embedded_B1D, caches[0], positions))
    hidden_B1D = halves[0].run_batch(embedded_B1D, caches[1], positions)
    got_BV = halves[1].logits_batch(halves[1].run_batch(boundary(hidden_B1D), caches[2], positions))

    assert torch.equal(got_BV, want_BV)
