"""Memory of weights: aligned, of the right shape, and no more of it than asked."""

import pytest
import torch
from swarm_stage.model.weight_memory import PAGE_BYTES, empty_weight

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(3, 5), (576, 3072), (1024, 1024), (4097, 333)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_weight_is_as_any_other_tensor(shape, dtype):
    weight = empty_weight(shape, dtype, CPU)
    weight.copy_(torch.arange(weight.numel(), dtype=torch.float32).view(shape))

    assert (weight.shape, weight.dtype, weight.is_contiguous()) == (shape, dtype, True)
    assert torch.equal(weight, torch.arange(weight.numel(), dtype=torch.float32).view(shape).to(dtype))


def test_large_weights_begin_on_a_large_page():
    assert empty_weight((2048, 2048), torch.float32, CPU).data_ptr() % PAGE_BYTES == 0


def test_weights_that_live_together_do_not_overlap():
    weights = [empty_weight((1024, 1024), torch.float32, CPU).fill_(number) for number in range(8)]

    assert [float(weight.sum()) / weight.numel() for weight in weights] == list(range(8))
