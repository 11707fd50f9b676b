"""What dies under `swarm up` is started again, with its ports and folders, and told. Its services are stand-ins."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.integration.cli.test_up_chat import command_of, environ_of

WAIT_S = 30.0


@dataclass
class Up:
    """A running `swarm up` of a leader, a gateway and a fellow. beside: processes of these tests that are not its."""

    supervisor: subprocess.Popen[str]
    folder: Path
    beside: set[psutil.Process]

    def document(self) -> dict:
        """The ready file as it is now."""
        return json.loads((self.folder / "ready.json").read_text())

    def pid(self, name: str) -> int:
        """As the ready file names it now."""
        return self.document()["processes"][name]

    def told(self) -> str:
        """Everything it wrote so far."""
        return (self.folder / "told.txt").read_text()

    def kill(self, name: str) -> int:
        """SIGKILL to the process that is named now; returns the id it had."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_and_await_next(self, name: str) -> int:
        """The id of the process that took its place."""
        before = self.kill(name)
        assert wait_until(lambda: self.pid(name) != before), self.told()
        return self.pid(name)

    def break_fellows(self) -> None:
        """Every fellow that starts from now on ends at once."""
        (self.folder / "broken").touch()


def wait_until(claim: Callable[[], bool], within_s: float = WAIT_S) -> bool:
    """Poll until the claim holds; False when it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def options() -> tuple[str, ...]:
    """Further options of `swarm up`."""
    return ()


@pytest.fixture
def up(tmp_path: Path, options: tuple[str, ...]) -> Iterator[Up]:
    """Ready; whatever the test leaves is ended."""
    command = [*command_of(tmp_path, *options), "--ready-file", str(tmp_path / "ready.json")]
    environ = environ_of(SCRIPTED_BROKEN=str(tmp_path / "broken"), COLUMNS="200")
    beside = set(psutil.Process().children(recursive=True))
    with (tmp_path / "told.txt").open("w") as told:
        supervisor = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=environ)
    try:
        up = Up(supervisor, tmp_path, beside)
        assert wait_until(lambda: (tmp_path / "ready.json").exists() or supervisor.poll() is not None)
        assert supervisor.poll() is None, up.told()
        yield up
    finally:
        supervisor.kill()  # the kernel ends its children
        supervisor.wait(timeout=WAIT_S)


def test_each_process_that_dies_is_started_again_at_its_port_and_told(up: Up):
    before = up.document()
    fellow, leader, gateway = (up.kill_and_await_next(name) for name in ("fellow-1", "leader", "gateway"))
    after = up.document()
    ports = [int(before[name].rpartition(":")[2]) for name in ("grpc", "http")]

    assert all(wait_until(lambda port=port: answers(port)) for port in ports)
    assert after["processes"] == {"leader": leader, "gateway": gateway, "fellow-1": fellow}
    assert {**before, "processes": {}} == {**after, "processes": {}}
    for name in ("fellow-1", "leader", "gateway"):
        assert f"{name} ended by signal 9; started again in 0.25 s\n" in up.told()


def answers(port: int) -> bool:
    """Whether someone listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_one_that_dies_five_times_at_once_ends_the_run_with_its_last_words(up: Up):
    children = [psutil.Process(pid) for pid in up.document()["processes"].values()]
    up.break_fellows()
    up.kill("fellow-1")
    code = up.supervisor.wait(timeout=WAIT_S)
    told = up.told()

    assert code == 1, told
    assert "fellow-1 ended with exit code 1; started again in 2 s" in told
    assert "fellow-1 ended with exit code 1; the end of" in told and "the disk is gone" in told
    assert not any(child.is_running() for child in children)
    assert not (up.folder / "ready.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_one_is_to_be_started_again_ends_everything(up: Up, number: signal.Signals):
    children = [psutil.Process(pid) for pid in up.document()["processes"].values()]
    up.break_fellows()
    up.kill("fellow-1")
    waits = wait_until(lambda: "started again in 2 s" in up.told())
    up.supervisor.send_signal(number)
    code = up.supervisor.wait(timeout=WAIT_S)

    assert waits
    assert code == 0, up.told()
    assert not any(child.is_running() for child in children)
    assert set(psutil.Process().children(recursive=True)) <= up.beside
    assert not (up.folder / "ready.json").exists()


@pytest.mark.parametrize("options", [("--no-restart",)])
def test_without_restarts_a_fellow_stays_away_and_the_leaders_death_ends_the_run(up: Up):
    up.kill("fellow-1")
    told = wait_until(lambda: "fellow-1 was killed by SIGKILL" in up.told())
    survived = up.supervisor.poll() is None
    up.kill("leader")
    code = up.supervisor.wait(timeout=WAIT_S)

    assert told and survived
    assert code == 1
    assert "leader was killed by SIGKILL" in up.told()
    assert "started again" not in up.told()
