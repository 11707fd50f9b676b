"""Products with adapters beside them: whatever the path and however rows are mixed, each row gets its own adapter's."""

import pytest
import torch
import torch.nn.functional as F
from swarm_core.errors import BadRequest, CapabilityMissing
from swarm_core.servable_parts import LORA
from swarm_core.slices import LayerRange
from swarm_stage.model.adapters.adapted_linear import AdaptedLinear, hold_adapters
from swarm_stage.model.adapters.adapter import PATHS, Adapter, LowRank
from swarm_stage.model.adapters.by_peft import hold_by_peft
from swarm_stage.model.adapters.choice import AdapterChoice, runs_of
from swarm_stage.model.adapters.config import AdapterConfig
from swarm_stage.model.products.adapted_product import AdaptedProduct, OneByOneProduct, adapted_product_of
from swarm_stage.model.products.product import DenseProduct
from torch import nn

INPUTS, OUTPUTS = 32, (48, 16, 16)
NAMES = ("q_proj", "k_proj", "v_proj")
LAYERS = LayerRange(5, 6, 8)


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / 4


class Slice(nn.Module):
    """One layer of three linear ones, standing at layer 5 of its model."""

    def __init__(self, has_bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = nn.Module()
        layer = nn.Module()
        for place, (name, outputs) in enumerate(zip(NAMES, OUTPUTS, strict=True)):
            linear = nn.Linear(INPUTS, outputs, bias=has_bias, dtype=dtype)
            linear.weight.data = numbers(place, outputs, INPUTS).to(dtype)
            if has_bias:
                linear.bias.data = numbers(place + 50, outputs).to(dtype)
            setattr(layer, name, linear)
        self.model.layers = nn.ModuleList([layer])

    @property
    def linears(self) -> list[nn.Module]:
        return [getattr(self.model.layers[0], name) for name in NAMES]


def adapter(model_id: str, seed: int, targets: tuple[str, ...] = NAMES, use: str = "chosen", rank: int = 4) -> Adapter:
    parts = {
        f"model.layers.5.{name}": LowRank(
            numbers(seed + place, rank, INPUTS), numbers(seed + place + 10, OUTPUTS[place], rank), 1.5
        )
        for place, name in enumerate(NAMES)
        if name in targets
    }
    return Adapter(model_id, use, AdapterConfig(rank, 1.5 * rank, False, (), (), LORA), parts)


RED, BLUE = adapter("red", 100), adapter("blue", 200, ("k_proj",), rank=7)
GREEN = adapter("green", 300, ("q_proj", "v_proj"))


def wanted(x_NI: torch.Tensor, chosen: list[int], adapters: list[Adapter], has_bias: bool) -> torch.Tensor:
    """Row by row, in float64."""
    bare, rows = Slice(has_bias, torch.float64), []
    for x_I, place in zip(x_NI.double(), chosen, strict=True):
        outputs = []
        for name, linear in zip(NAMES, bare.linears, strict=True):
            y_O = F.linear(x_I, linear.weight, linear.bias)
            for each, an_adapter in enumerate(adapters, 1):
                part = an_adapter.parts.get(f"model.layers.5.{name}")
                if part is not None and (each == place or an_adapter.use == "always"):
                    y_O = y_O + part.scale * (part.b_OR.double() @ (part.a_RI.double() @ x_I))
            outputs.append(y_O)
        rows.append(torch.cat(outputs))
    return torch.stack(rows).detach()


def held(adapters: list[Adapter], lora: str, has_bias: bool = False, dtype: torch.dtype = torch.float32):
    """The linear layers with the adapters beside them, and the choice."""
    model = Slice(has_bias, dtype).requires_grad_(False)
    choice = hold_adapters(model, adapters, LAYERS, lora, dtype)
    return model.linears, choice


@pytest.mark.parametrize("lora", PATHS)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(
    "chosen", [[0], [2], [1, 1, 1, 1], [0, 1, 2, 3], [3, 0, 0, 1, 3, 1, 2, 0, 2], [1] * 40 + [0] * 9]
)
@torch.inference_mode()
def test_every_row_gets_what_its_own_adapter_adds(lora, has_bias, chosen):
    adapters = [RED, BLUE, GREEN]
    linears, _ = held(adapters, lora, has_bias)
    product, x = adapted_product_of(linears), numbers(7, len(chosen), INPUTS)
    before = base = numbers(8, len(chosen), sum(OUTPUTS))
    want = wanted(x, chosen, adapters, has_bias)

    assert torch.allclose(product(x, chosen).double(), want, atol=1e-5)
    assert torch.allclose(product.added_to(base, x, chosen).double(), base + want, atol=1e-5)
    assert torch.equal(base, before)


@pytest.mark.parametrize("lora", PATHS)
@torch.inference_mode()
def test_what_is_always_in_effect_is_so_beside_the_chosen_and_without_a_choice(lora):
    adapters = [adapter("own", 400, use="always"), RED, adapter("more", 500, ("v_proj",), use="always")]
    linears, choice = held(adapters, lora)
    product, x = adapted_product_of(linears), numbers(7, 4, INPUTS)

    assert torch.allclose(product(x).double(), wanted(x, [0] * 4, adapters, False), atol=1e-5)
    assert torch.allclose(product(x, [2, 0, 2, 0]).double(), wanted(x, [2, 0, 2, 0], adapters, False), atol=1e-5)
    assert [choice.place_of(name) for name in ("", "own", "red", "more")] == [0, 0, 2, 0]
    assert choice.choices == {"red": 2}


@pytest.mark.parametrize("lora", PATHS)
@torch.inference_mode()
def test_a_module_runs_with_the_choice_that_is_set(lora):
    """As transformers' own forward calls it, with a batch dimension."""
    adapters = [RED, BLUE, GREEN]
    linears, choice = held(adapters, lora, has_bias=True)
    x = numbers(7, 5, INPUTS)
    for place in (3, 0, 1, 2):
        choice.place = place
        got = torch.cat([linear(x[None])[0] for linear in linears], dim=-1)

        assert torch.allclose(got.double(), wanted(x, [place] * 5, adapters, True), atol=1e-5)


@pytest.mark.parametrize("lora", PATHS)
@torch.inference_mode()
def test_in_half_precision_all_paths_agree_to_rounding(lora):
    """Adapters in float32 add less error than the base's own rounding; lean16 at most as much again."""
    adapters, chosen = [RED, BLUE, GREEN], [0, 1, 2, 3]
    linears, _ = held(adapters, lora, dtype=torch.bfloat16)
    x = numbers(7, 4, INPUTS).bfloat16()
    got = adapted_product_of(linears)(x, chosen)

    assert got.dtype is torch.bfloat16
    assert torch.allclose(got.double(), wanted(x, chosen, adapters, False), atol=0.03, rtol=0.02)


@torch.inference_mode()
def test_only_lean16_holds_adapters_in_the_computed_type():
    def adapter_bytes(lora: str) -> int:
        linears, _ = held([RED], lora, dtype=torch.bfloat16)
        return sum(parameter.nbytes for linear in linears for parameter in linear.parameters())

    base = sum(INPUTS * outputs * 2 for outputs in OUTPUTS)
    elements = sum(4 * (INPUTS + outputs) for outputs in OUTPUTS)
    assert adapter_bytes("lean") == adapter_bytes("peft") == base + 4 * elements
    assert adapter_bytes("lean16") == base + 2 * elements


def test_without_adapters_the_product_is_the_very_same():
    linears, choice = held([], "lean")

    assert choice is None
    assert type(adapted_product_of(linears)) is DenseProduct


def test_merged_adapters_leave_nothing_beside_the_weights():
    linears, choice = held([adapter("own", 400, use="merged")], "lean")

    assert not any(isinstance(linear, AdaptedLinear) for linear in linears)
    assert type(adapted_product_of(linears)) is DenseProduct
    assert choice.place_of("own") == 0 and choice.choices == {}


def test_layers_no_adapter_changes_are_not_touched():
    linears, _ = held([BLUE], "lean")

    assert [isinstance(linear, AdaptedLinear) for linear in linears] == [False, True, False]
    assert type(adapted_product_of(linears)) is AdaptedProduct
    assert type(adapted_product_of(linears[:1])) is DenseProduct


def test_peft_runs_its_own_layers():
    from peft.tuners.lora import LoraLayer

    linears, _ = held([BLUE], "peft")

    assert isinstance(linears[1].base, LoraLayer)
    assert type(adapted_product_of(linears)) is OneByOneProduct


def test_an_adapter_nobody_holds_cannot_be_chosen():
    choice = AdapterChoice({"red": 1})

    with pytest.raises(BadRequest, match="holds no adapter 'blue'"):
        choice.place_of("blue")
    assert choice.place_of("red") == 1 and choice.place_of("") == 0


@pytest.mark.parametrize(
    ("chosen", "runs"),
    [
        (None, [(0, 4, 0)]),
        ([2, 2, 2, 2], [(0, 4, 2)]),
        ([0, 1, 1, 0], [(0, 1, 0), (1, 3, 1), (3, 4, 0)]),
        ([3, 2, 1, 0], [(0, 1, 3), (1, 2, 2), (2, 3, 1), (3, 4, 0)]),
    ],
)
def test_neighbours_that_chose_alike_are_one_run(chosen, runs):
    assert list(runs_of(chosen, 4)) == runs


def test_without_peft_installed_its_path_is_refused_by_name():
    def find_nothing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    with pytest.raises(CapabilityMissing, match=r"SWARM_SERVE_LORA.*not installed.*'peft'"):
        hold_by_peft(Slice(False, torch.float32), {1: RED}, LAYERS, AdapterChoice({}), frozenset(), find_nothing)
