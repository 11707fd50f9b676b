"""The production way: leader, gateway and fellows as processes of their own, started and lost one by one."""

import json
import signal
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.swarm import Process, free_port, run_cli, start, wait_for


class Fleet:
    """Processes by name, and the leader's address."""

    def __init__(self, folder, models_root) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: dict[str, Process] = {}
        self._models_root = models_root

    def start_leader(self) -> None:
        env = {
            "SWARM_GRPC_PORT": str(self.port),
            "SWARM_DATA_DIR": str(self.folder / "leader"),
            "SWARM_SERVABLE_MODELS_ROOT": str(self._models_root),
            "SWARM_HEARTBEAT_S": "0.5",
            "SWARM_LEASE_S": "10",
        }
        self.processes["leader"] = start("swarm_leader", log=self.folder / "leader.log", env=env)

    def start_fellow(self, name: str, **env: str) -> None:
        state = self.folder / name
        variables = {"SWARM_FELLOW_MODEL_CACHE": str(state / "models"), "SWARM_STAGE_THREADS": "1", **env}
        arguments = ("--leader", self.address, "--name", name, "--state-dir", state)
        self.processes[name] = start("swarm_fellow", *arguments, log=self.folder / f"{name}.log", env=variables)

    def cli(self, *arguments: object):
        return run_cli(*arguments, leader=self.address)

    def status(self) -> dict:
        models = json.loads(self.cli("--json", "status").stdout or "{}")
        return models

    def wait_fellows(self, count: int) -> None:
        wait_for(lambda: self.cli("fellows").stdout.count("connected") >= count, 60, f"{count} fellows", every_s=0.5)


@contextmanager
def fleet_of(folder, models_root, fellows: dict[str, dict[str, str]]):
    """A leader and fellows, each with its own environment."""
    fleet = Fleet(folder, models_root)
    try:
        fleet.start_leader()
        for name, env in fellows.items():
            fleet.start_fellow(name, **env)
        fleet.wait_fellows(len(fellows))
        yield fleet
    finally:
        for process in reversed(fleet.processes.values()):
            process.stop()


def paris(fleet: Fleet) -> bool:
    reply = fleet.cli("infer", MODEL, "What is the capital of France?", "--temperature", 0)
    return "Paris" in reply.stdout


@pytest.mark.parametrize("transport", ["p2p", pytest.param("tunnel", marks=pytest.mark.slow)])
def test_a_killed_leader_comes_back_and_adopts_the_ring_with_its_stages(models_root, tmp_path, transport):
    with fleet_of(tmp_path, models_root, {"north": {}, "south": {}}) as fleet:
        loaded = fleet.cli("model-load", MODEL, "--num-stages", 2, "--transport", transport, "--wait")
        assert loaded.returncode == 0, loaded.stderr
        fleet.processes["leader"].stop(signal.SIGKILL)
        fleet.start_leader()
        adopted = wait_for(lambda: paris(fleet), 60, "a reply after the restart", every_s=0.5)
        logs = [(tmp_path / f"{name}.log").read_text() for name in ("north", "south")]

    assert adopted
    assert all(log.count("stage loaded") <= 1 for log in logs)


def test_a_fellow_that_declares_less_gets_the_documented_fallback_or_is_named(models_root, tmp_path):
    """No direct links: the relay carries them. No longer rings: a ring of three is refused, and the fellow named."""
    fellows = {
        "full": {},
        "modest": {"SWARM_FELLOW_DISABLE_CAPABILITIES": "direct_link,serve_n_stage,serve_concurrent"},
        "third": {},
    }
    with fleet_of(tmp_path, models_root, fellows) as fleet:
        refused = fleet.cli("model-load", MODEL, "--num-stages", 3)
        p2p = fleet.cli(
            "model-load", MODEL, "--num-stages", 2, "--fellow", "full", "--fellow", "modest", "--transport", "p2p"
        )
        loaded = fleet.cli("model-load", MODEL, "--num-stages", 2, "--fellow", "full", "--fellow", "modest", "--wait")
        status = fleet.cli("status").stdout
        answered = paris(fleet)

    assert refused.returncode == 1 and "modest" in refused.stderr and "serve_n_stage" in refused.stderr
    assert p2p.returncode == 1 and "modest" in p2p.stderr
    assert loaded.returncode == 0, loaded.stderr
    assert "relay" in status and answered


def test_a_leader_on_another_interface_without_tls_is_refused_with_the_way_out(tmp_path):
    env = {"SWARM_LEADER_HOST": "0.0.0.0", "SWARM_TLS": "0", "SWARM_DATA_DIR": str(tmp_path)}
    process = start("swarm_leader", log=tmp_path / "leader.log", env=env)
    code = process.popen.wait(30)

    assert code == 2
    assert "SWARM_ALLOW_INSECURE=1" in process.tail()
