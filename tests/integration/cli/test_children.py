"""Real processes under a supervisor: they end together, and never outlive it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from swarm_cli.up.children import ChildDied, Children
from swarm_cli.up.lock import hold_folder
from swarm_cli.up.plan import ChildSpec
from swarm_cli.up.ports import choose_port
from swarm_core.errors import Conflict

SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
SUPERVISE = """
import asyncio, sys
from pathlib import Path
from swarm_cli.up.children import Children
from swarm_cli.up.plan import ChildSpec
async def main():
    children = Children()
    await children.start(ChildSpec("one", (sys.executable, "-c", sys.argv[1]), {}, Path(sys.argv[2])))
    print(children.pids()["one"], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def spec_of(code: str, folder: Path, name: str = "one") -> ChildSpec:
    """A Python process that runs `code`."""
    return ChildSpec(name, (sys.executable, "-c", code), dict(os.environ), folder / f"{name}.log")


def wait_until(claim: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Poll until the claim holds; False when it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


async def test_stopping_ends_every_process(tmp_path: Path):
    children = Children()
    for name in ("leader", "gateway", "fellow-1"):
        await children.start(spec_of(SLEEP, tmp_path, name))
    pids = list(children.pids().values())

    await children.stop_all()

    assert children.pids() == {}
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_a_child_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path):
    children = Children()
    await children.start(spec_of("print('the port is taken'); raise SystemExit(3)", tmp_path))

    death = await asyncio.wait_for(children.next_death(), 10)

    assert "one ended with exit code 3" in death.message
    assert "the port is taken" in death.message
    assert death.facts["name"] == "one"


async def test_work_is_given_up_when_a_child_dies(tmp_path: Path):
    children = Children()
    await children.start(spec_of(SLEEP, tmp_path))
    os.kill(children.pids()["one"], signal.SIGKILL)

    with pytest.raises(ChildDied, match="one was killed by SIGKILL"):
        await asyncio.wait_for(children.while_all_live(asyncio.sleep(60)), 10)


async def test_work_that_ends_first_gives_its_answer(tmp_path: Path):
    children = Children()
    await children.start(spec_of(SLEEP, tmp_path))

    try:
        assert await children.while_all_live(asyncio.sleep(0, "done")) == "done"
    finally:
        await children.stop_all()


async def test_a_second_signal_kills_a_child_that_does_not_listen(tmp_path: Path):
    children = Children()
    spec = spec_of(DEAF, tmp_path)
    await children.start(spec)
    deaf = await asyncio.to_thread(wait_until, lambda: "deaf" in spec.log.read_text())
    stopping = asyncio.create_task(children.stop_all())
    await asyncio.sleep(0)
    children.kill_all()

    await asyncio.wait_for(stopping, 5)

    assert deaf
    assert children.pids() == {}


def test_a_child_dies_with_a_supervisor_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", SUPERVISE, DEAF, str(tmp_path / "one.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        child = psutil.Process(int(supervisor.stdout.readline()))
        was_running = child.is_running()
        supervisor.kill()

    assert was_running
    assert wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_folder_in_use_is_refused_with_the_owner(tmp_path: Path):
    refusal = pytest.raises(Conflict, match=rf"process {os.getpid()}\) uses")
    with hold_folder(tmp_path), refusal as refused, hold_folder(tmp_path):
        pass

    assert all(hint in refused.value.message for hint in ("--data-dir", "`swarm chat MODEL`", "`swarm status`"))


def test_a_folder_is_free_again_after_its_owner(tmp_path: Path):
    with hold_folder(tmp_path):
        pass

    with hold_folder(tmp_path):
        assert (tmp_path / "up.lock").read_text() == str(os.getpid())


def test_a_taken_port_is_refused_and_names_the_option():
    refusal = pytest.raises(Conflict, match=r"is taken .* --http-port")
    with socket.create_server(("127.0.0.1", 0)) as taken, refusal:
        choose_port(taken.getsockname()[1], "--http-port")


def test_port_0_is_a_free_port():
    port = choose_port(0, "--http-port")

    assert choose_port(port, "--http-port") == port


async def test_a_child_that_ends_in_the_moment_in_which_the_work_is_done_is_told_of_next(tmp_path: Path):
    """Otherwise nobody would start it again."""
    children = Children()

    async def work() -> str:
        while children._ended.empty():
            await asyncio.sleep(0)
        return "done"

    await children.start(spec_of("", tmp_path))
    done = await children.while_all_live(work())
    async with asyncio.timeout(10):
        death = await children.next_death()
    await children.stop_all()

    assert (done, death.facts["name"]) == ("done", "one")
