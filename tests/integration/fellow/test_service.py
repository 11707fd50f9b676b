"""The real `python -m swarm_fellow`: signals, kill -9, refusals, systemd."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.integration.fellow.running_fellow import environment, stage_pids
from tests.integration.fellow.scripted_leader import ScriptedLeader, TinyModel, eventually

UNIT = Path(__file__).parents[3] / "services" / "fellow" / "deploy" / "swarm-fellow.service"


def arguments(leader: str, folder: Path) -> list[str]:
    """The command line of a fellow."""
    return [sys.executable, "-m", "swarm_fellow", "--leader", leader, "--state-dir", str(folder / "state")]


@contextlib.asynccontextmanager
async def fellow_process(leader: str, folder: Path, **variables: str) -> AsyncIterator[subprocess.Popen]:
    """A fellow as its own process, killed at the end if it still runs."""
    environ = environment(SWARM_FELLOW_MODEL_CACHE=str(folder / "models"), **variables)
    with (folder / "fellow.log").open("ab") as log:
        fellow = subprocess.Popen(arguments(leader, folder), env=environ, stderr=log, stdout=log)  # noqa: ASYNC220
        try:
            yield fellow
        finally:
            if fellow.poll() is None:
                fellow.kill()
            fellow.wait()


async def test_a_stage_does_not_outlive_a_fellow_that_is_killed(tmp_path: Path):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with fellow_process(leader.address, tmp_path) as fellow:
        await (await leader.connection()).load(leader.models["tiny/one"].spec("p1"))
        stages = [psutil.Process(pid) for pid in stage_pids(fellow.pid)]
        fellow.send_signal(signal.SIGKILL)
        await eventually(lambda: not any(is_running(stage) for stage in stages), "its stage ended too")

        assert len(stages) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_ends_every_stage_and_exits_0(tmp_path: Path, number: signal.Signals):
    leader = ScriptedLeader(TinyModel())
    await leader.start()
    async with fellow_process(leader.address, tmp_path) as fellow:
        await (await leader.connection()).load(leader.models["tiny/one"].spec("p1"))
        stages = [psutil.Process(pid) for pid in stage_pids(fellow.pid)]
        fellow.send_signal(number)
        await eventually(lambda: fellow.poll() is not None, "the fellow ended", 15)

        assert fellow.returncode == 0
        assert len(stages) == 1 and not is_running(stages[0])
        assert not list((tmp_path / "state").glob("run/*"))


async def test_a_second_fellow_on_the_same_state_folder_is_refused_by_name(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    async with fellow_process(leader.address, tmp_path) as fellow:
        await leader.connection()
        command = arguments(leader.address, tmp_path)
        second = await asyncio.to_thread(
            subprocess.run, command, env=environment(), capture_output=True, text=True, timeout=30
        )

        assert second.returncode == 2
        assert f"process {fellow.pid}" in second.stderr and "--state-dir" in second.stderr
        assert fellow.poll() is None


async def test_the_identity_stays_over_restarts_and_is_nobody_else_s_to_read(tmp_path: Path):
    leader = ScriptedLeader()
    await leader.start()
    for number in (1, 2):
        async with fellow_process(leader.address, tmp_path):
            await leader.connection(number)
    first, second = (connection.register for connection in leader.connections)

    assert first.identity == second.identity
    assert (tmp_path / "state" / "identity").stat().st_mode & 0o777 == 0o600


async def test_systemd_hears_ready_watchdog_and_stopping_on_an_abstract_socket(tmp_path: Path):
    name = f"swarm-fellow-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
        service_manager.bind(f"\0{name}")
        service_manager.setblocking(False)
        heard: list[bytes] = []

        def hears(message: bytes) -> bool:
            with contextlib.suppress(BlockingIOError):
                heard.append(service_manager.recv(4096))
            return message in heard

        variables = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "200000"}
        async with fellow_process("127.0.0.1:9", tmp_path, **variables) as fellow:
            await eventually(lambda: hears(b"READY=1"), "READY came, also without a leader")
            await eventually(lambda: hears(b"WATCHDOG=1"), "WATCHDOG came")
            fellow.send_signal(signal.SIGTERM)
            await eventually(lambda: hears(b"STOPPING=1"), "STOPPING came")
            await eventually(lambda: fellow.poll() is not None, "it ended")

            assert fellow.returncode == 0


def test_what_cannot_work_is_refused_with_the_variable_and_the_fix(tmp_path: Path):
    def refusal(**variables: str) -> str:
        command = [sys.executable, "-m", "swarm_fellow", "--state-dir", str(tmp_path / "state")]
        ended = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=30)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1
        return ended.stderr

    assert "SWARM_LEADER" in refusal()
    assert "SWARM_ALLOW_INSECURE" in refusal(SWARM_LEADER="127.0.0.1:1", SWARM_RING_BIND_HOST="0.0.0.0")


async def test_a_stage_of_another_swarm_is_not_taken_for_one_of_ours():
    stranger = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", "swarm_stage", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        await eventually(lambda: "swarm_stage" in psutil.Process(stranger.pid).cmdline(), "the stranger runs")

        assert stage_pids() == []
    finally:
        stranger.kill()
        await stranger.wait()


def test_help_lists_every_variable():
    shown = subprocess.run(
        [sys.executable, "-m", "swarm_fellow", "--help"], capture_output=True, text=True, timeout=30, check=True
    )

    for variable in ("SWARM_LEADER", "SWARM_MODEL_IDLE_UNLOAD_S", "SWARM_RING_ADVERTISE_HOST"):
        assert variable in shown.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_systemd_unit_passes_its_own_verifier(tmp_path: Path):
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/silentswarm/bin/swarm-fellow", sys.executable))
    verdict = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)

    assert (verdict.returncode, verdict.stderr.strip()) == (0, "")


def is_running(process: psutil.Process) -> bool:
    """Whether a process still does anything."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
