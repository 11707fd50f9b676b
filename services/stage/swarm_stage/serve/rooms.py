"""What a loaded slice finds free on each of its devices. Asks driver and system; budget.py does the arithmetic."""

from collections.abc import Mapping
from pathlib import Path

import torch
from swarm_core.errors import ServableCorrupt

from swarm_stage.engine.budget import WORKING_BYTES, DeviceRoom
from swarm_stage.model.slice_model import SliceModel


def rooms_of(model: SliceModel, working_bytes: Mapping[str, int]) -> list[DeviceRoom]:
    """One for each memory the slice is in. working_bytes: of a device's passing buffers, where they are not the usual.

    Runs on the processor share its memory, however they are called.
    """
    kv_bytes: dict[str, int] = {}
    for run in model.spread.runs:
        memory = memory_of(run.device)
        layers = run.layer_stop - run.layer_start
        kv_bytes[memory] = kv_bytes.get(memory, 0) + layers * model.layer_kv_bytes_per_token
    return [
        DeviceRoom(memory, free_bytes(memory), taken, working_bytes.get(memory, WORKING_BYTES))
        for memory, taken in kv_bytes.items()
    ]


def memory_of(device: str) -> str:
    """The memory a device computes in: the processor has one."""
    return "cpu" if torch.device(device).type == "cpu" else device


def free_bytes(device: str) -> int:
    """What is free for us on the device now, in bytes; on a card with the blocks torch keeps and does not use."""
    if device.startswith("cuda"):
        cached_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached_bytes
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ServableCorrupt("this machine does not say how much memory is available (/proc/meminfo)")
