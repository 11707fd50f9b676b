"""The machine's own facts: devices, addresses, logs, exits, configuration."""

import os
from pathlib import Path

import psutil
import pytest
from swarm_core.errors import BadRequest, Conflict
from swarm_fellow.config import FellowConfig, read_config
from swarm_fellow.host.address import advertised_host
from swarm_fellow.host.hardware import Hardware, choose_device, compute_dtype, read_processor
from swarm_fellow.host.identity import StateFolder
from swarm_fellow.host.stage_log import StageLog
from swarm_fellow.host.stage_process import StageHost, describe_exit

LEADER = {"SWARM_LEADER": "127.0.0.1:50551"}


def test_free_memory_is_what_is_available_and_never_more_than_lent():
    everything, lent = read_processor(0, 0, None), read_processor(64 * 2**20, 0, None)

    assert 64 * 2**20 < everything.memory_free_bytes <= psutil.virtual_memory().total
    assert lent.memory_free_bytes == 64 * 2**20 and lent.memory_total_bytes == everything.memory_total_bytes


def test_what_our_stages_hold_counts_against_what_is_lent():
    assert read_processor(64 * 2**20, 60 * 2**20, None).memory_free_bytes == 4 * 2**20
    assert read_processor(64 * 2**20, 99 * 2**20, None).memory_free_bytes == 0


def test_only_the_device_stages_may_use_is_reported():
    hardware = Hardware(0, "cpu")
    devices = hardware.read_devices(0)

    assert choose_device(devices) == "cpu"
    assert [(device.name, device.compute_dtype) for device in devices] == [("cpu", "F32")]


def test_a_device_that_is_not_here_is_refused_at_the_start():
    with pytest.raises(BadRequest, match=r"cuda:77 is not here; there is .*cpu"):
        Hardware(0, "cuda:77")


@pytest.mark.parametrize(("major", "dtype"), [(6, "F32"), (7, "F16"), (8, "BF16"), (9, "BF16"), (12, "BF16")])
def test_a_card_computes_in_what_its_generation_is_fast_at(major: int, dtype: str):
    assert compute_dtype(major) == dtype


@pytest.mark.parametrize(
    ("bind", "advertise", "dialled"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "box.example", "box.example"),
        ("0.0.0.0", "", "127.0.0.1"),  # the address towards a leader on loopback
        ("", "box.example", ""),
        ("::1", "[::1]", "::1"),
    ],
)
def test_peers_dial_what_is_advertised_or_bound_or_faces_the_leader(bind: str, advertise: str, dialled: str):
    assert advertised_host(bind, advertise, "127.0.0.1:50551") == dialled


def test_a_log_is_rotated_by_size_and_its_tail_kept(tmp_path: Path):
    log = StageLog(tmp_path / "stage.log", bytes_max=10_000)
    for number in range(2000):
        log.write(f"line {number}\n".encode())
    log.close()

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["stage.log", "stage.log.1"]
    assert sum(file.stat().st_size for file in files) < 21_000
    assert log.tail().splitlines()[-1] == "line 1999" and len(log.tail().splitlines()) == 15


def test_an_exit_is_described_by_code_or_signal_name():
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-11) == "was ended by SIGSEGV"
    assert "memory" in describe_exit(-9)


def test_a_state_folder_is_held_by_one_and_keeps_its_identity(tmp_path: Path):
    with StateFolder(tmp_path) as state:
        identity = state.identity()
        with pytest.raises(Conflict, match=f"process {os.getpid()}"):
            StateFolder(tmp_path)
    with StateFolder(tmp_path) as again:
        assert again.identity() == identity


def test_sockets_of_a_deep_state_folder_go_where_their_path_is_short_enough(tmp_path: Path):
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    near, far = StageHost(["true"], tmp_path / "s", {}), StageHost(["true"], deep, {})

    assert near.run_dir == tmp_path / "s" / "run" or len(str(tmp_path)) > 80
    assert len(str(far.run_dir / "s999999.sock")) < 100
    assert far.run_dir.stat().st_mode & 0o777 == 0o700
    far.run_dir.rmdir()


def test_an_empty_ring_bind_host_means_no_listening_and_an_unset_one_loopback():
    assert read_config(LEADER).bind_host == "127.0.0.1"
    assert read_config(LEADER | {"SWARM_RING_BIND_HOST": ""}).bind_host == ""
    assert read_config(LEADER | {"SWARM_FELLOW_DISABLE_CAPABILITIES": "direct_link"}).bind_host == ""


def test_flags_win_over_the_environment():
    assert read_config(LEADER, leader="other:1").leader == "other:1"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "SWARM_LEADER"),
        ({"SWARM_LEADER": "nowhere"}, "HOST:PORT"),
        (LEADER | {"SWARM_RING_BIND_HOST": "0.0.0.0"}, "SWARM_ALLOW_INSECURE"),
        (LEADER | {"SWARM_MAX_LOADED_MODELS": "0"}, "SWARM_MAX_LOADED_MODELS"),
        (LEADER | {"SWARM_MAX_LOADED_MODELS": "many"}, "SWARM_MAX_LOADED_MODELS"),
        (LEADER | {"SWARM_MODEL_IDLE_UNLOAD_S": "-1"}, "SWARM_MODEL_IDLE_UNLOAD_S"),
        (LEADER | {"SWARM_STAGE_DEVICE": "gpu"}, "SWARM_STAGE_DEVICE"),
        (LEADER | {"SWARM_RELAY": "r"}, "HOST:PORT"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(variables: dict[str, str], named: str):
    with pytest.raises(BadRequest, match=named):
        read_config(variables)


def test_the_defaults_are_those_of_the_documentation():
    config = FellowConfig()

    assert (config.loaded_models_max, config.idle_unload_s) == (1, 900)
    assert (config.prefill_chunk_tokens, config.in_flight_max) == (256, 8)
