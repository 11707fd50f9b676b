"""Layers on devices: named in this machine's order, each layer once, nothing else taken."""

import pytest
from swarm_core.errors import BadRequest
from swarm_fellow.domain.device_runs import DeviceRun, place_layers

NAMES = ("cuda:0", "cuda:1", "cpu")


def test_runs_are_named_in_the_order_in_which_devices_are_reported():
    placed = place_layers([(1, 4, 6), (0, 6, 9), (2, 9, 10)], NAMES, 4, 10)

    assert placed == [DeviceRun("cuda:1", 4, 6), DeviceRun("cuda:0", 6, 9), DeviceRun("cpu", 9, 10)]


def test_no_runs_leave_the_choice_to_the_fellow():
    assert place_layers([], NAMES, 4, 10) == []


@pytest.mark.parametrize(
    "asked",
    [
        [(0, 4, 9)],
        [(0, 4, 11)],
        [(0, 5, 10)],
        [(0, 4, 6), (1, 7, 10)],
        [(0, 4, 8), (1, 6, 10)],
        [(0, 4, 4), (1, 4, 10)],
        [(0, 4, 10), (1, 10, 10)],
        [(1, 6, 10), (0, 4, 6)],
    ],
    ids=["short", "long", "late", "gap", "overlap", "empty", "empty last", "out of order"],
)
def test_runs_that_do_not_hold_each_layer_once_are_refused(asked: list[tuple[int, int, int]]):
    with pytest.raises(BadRequest, match="not layers 4 to 10, each once and in order"):
        place_layers(asked, NAMES, 4, 10)


@pytest.mark.parametrize("index", [3, 2**32 - 1])
def test_a_device_that_is_not_here_is_refused_by_number_with_those_that_are(index: int):
    with pytest.raises(BadRequest, match=r"device \d+; there are 3 \(cuda:0, cuda:1, cpu\)"):
        place_layers([(index, 4, 10)], NAMES, 4, 10)
