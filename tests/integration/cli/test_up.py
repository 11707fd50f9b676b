"""`swarm up` with its real processes, but no model: what starts, what is written, and what ends it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.e2e
READY_S = 60.0
END_S = 20.0


@dataclass
class Up:
    """One running `swarm up`. document: its ready file, as it was."""

    supervisor: subprocess.Popen[str]
    document: dict[str, Any]
    folder: Path

    @property
    def children(self) -> list[psutil.Process]:
        """What the ready file names."""
        return [psutil.Process(pid) for pid in self.document["processes"].values()]

    def told(self) -> str:
        """Everything it wrote so far."""
        return (self.folder / "told.txt").read_text()


def wait_until(claim: Callable[[], bool], within_s: float) -> bool:
    """Poll until the claim holds; False when it does not in time."""
    deadline_s = time.monotonic() + within_s
    while not claim():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def has_ended(child: psutil.Process) -> bool:
    """Gone, or waiting to be reaped by whoever adopted it."""
    try:
        return child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def read_text(url: str) -> str:
    """What a GET answers."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def start_up(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`swarm up` without a model on free ports; its words go to told.txt."""
    command = [sys.executable, "-m", "swarm_cli", "up", "--no-model", "--fellows", "2", "--data-dir", str(folder)]
    command += ["--http-port", "0", "--grpc-port", "0", *options]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "told.txt").open("w") as told:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=dict(os.environ))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A swarm of a leader, a gateway and two fellows, ready."""
    ready_file = tmp_path / "ready.json"
    supervisor = start_up(tmp_path / "up", "--ready-file", str(ready_file))
    try:
        wait_until(lambda: ready_file.exists() or supervisor.poll() is not None, READY_S)
        assert ready_file.exists(), (tmp_path / "up" / "told.txt").read_text()
        yield Up(supervisor, json.loads(ready_file.read_text()), tmp_path / "up")
    finally:
        supervisor.terminate()
        supervisor.wait(timeout=END_S)


def test_the_ready_file_names_addresses_and_processes_that_answer(up: Up):
    with urllib.request.urlopen(f"{up.document['http']}/healthz", timeout=5) as answer:
        gateway_status = answer.status
    host, port = up.document["grpc"].split(":")
    socket.create_connection((host, int(port)), timeout=5).close()

    assert gateway_status == 200
    metrics = {name: read_text(url) for name, url in up.document["metrics"].items()}
    targets = json.loads((up.folder / "prometheus-targets.json").read_text())

    assert up.document["model"] is None
    assert list(metrics) == ["leader", "gateway", "fellow-1", "fellow-2"]
    assert all("# HELP silentswarm_" in text for text in metrics.values())
    assert [target["labels"]["process"] for target in targets] == list(metrics)
    assert f"{up.document['metrics']['fellow-2']} (fellow-2)" in up.told()
    assert sorted(up.document["processes"]) == ["fellow-1", "fellow-2", "gateway", "leader"]
    assert not any(has_ended(child) for child in up.children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_process_and_takes_the_ready_file_away(up: Up, number: signal.Signals):
    children = up.children

    up.supervisor.send_signal(number)
    code = up.supervisor.wait(timeout=END_S)

    assert code == 0, up.told()
    assert all(has_ended(child) for child in children)
    assert not (up.folder.parent / "ready.json").exists()
    assert not (up.folder / "prometheus-targets.json").exists()


def test_no_child_outlives_a_supervisor_that_is_killed(up: Up):
    children = up.children

    up.supervisor.kill()
    up.supervisor.wait(timeout=END_S)

    assert wait_until(lambda: all(has_ended(child) for child in children), END_S)


def test_a_leader_and_a_fellow_that_die_come_back_as_the_same(up: Up):
    """One row a machine, whoever is started again."""
    pids, children = up.document["processes"], up.children
    for name in ("fellow-2", "leader"):
        os.kill(pids[name], signal.SIGKILL)
    told = wait_until(lambda: all(f"{name} ended by signal 9" in up.told() for name in ("fellow-2", "leader")), END_S)
    back = wait_until(lambda: fellows(up) == {"fellow-1": "connected", "fellow-2": "connected"}, READY_S)
    named = json.loads((up.folder.parent / "ready.json").read_text())["processes"]
    said = wait_until(lambda: all(f"{name} is back" in up.told() for name in ("fellow-2", "leader")), END_S)

    assert told
    assert said, up.told()
    assert back, fellows(up)
    assert {name for name, pid in named.items() if pid != pids[name]} == {"fellow-2", "leader"}
    assert [has_ended(child) for child in children] == [name in ("fellow-2", "leader") for name in pids]


def fellows(up: Up) -> dict[str, str]:
    """State by name; empty while the leader does not answer."""
    command = [sys.executable, "-m", "swarm_cli", "--json", "fellows", "--leader", up.document["grpc"]]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=END_S)
    rows = json.loads(shown.stdout)["fellows"] if shown.returncode == 0 else []
    return {row["name"]: row["state"] for row in rows}


def test_a_second_run_on_the_same_folder_is_refused_and_the_first_goes_on(up: Up):
    """The folder is told, not the ports, which are taken as well."""
    command = [sys.executable, "-m", "swarm_cli", "up", "--no-model", "--data-dir", str(up.folder)]
    command += ["--http-port", up.document["http"].rpartition(":")[2]]
    command += ["--grpc-port", up.document["grpc"].rpartition(":")[2]]
    second = subprocess.run(command, capture_output=True, text=True, timeout=END_S)

    assert second.returncode == 1
    assert f"another `swarm up` (process {up.supervisor.pid}) uses {up.folder}" in second.stderr
    assert up.supervisor.poll() is None


def test_without_metrics_there_is_neither_a_port_nor_a_word_of_them(tmp_path: Path):
    ready_file = tmp_path / "ready.json"
    supervisor = start_up(tmp_path / "up", "--ready-file", str(ready_file), "--no-metrics")
    try:
        wait_until(lambda: ready_file.exists() or supervisor.poll() is not None, READY_S)
        told = (tmp_path / "up" / "told.txt").read_text()
        document = json.loads(ready_file.read_text()) if ready_file.exists() else {}
    finally:
        supervisor.terminate()
        supervisor.wait(timeout=END_S)

    assert document.get("metrics") == {}, told
    assert "Prometheus" not in told
    assert not (tmp_path / "up" / "prometheus-targets.json").exists()


def test_a_child_that_cannot_start_ends_the_run_with_its_log(tmp_path: Path):
    (tmp_path / "leader").mkdir()
    (tmp_path / "leader" / "leader.db").mkdir()
    supervisor = start_up(tmp_path)

    code = supervisor.wait(timeout=READY_S)
    told = (tmp_path / "told.txt").read_text()

    assert code == 1, told
    assert "leader ended with exit code" in told
    assert str(tmp_path / "logs" / "leader.log") in told
