"""Every link encrypted and proved, in real processes: control, transfer, direct links, and a relay of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.swarm import Process, free_port, start, wait_for

RELAY_SECRET = "a secret of the relay and its leader"


class EncryptedFleet:
    """A leader with TLS on loopback, and fellows that know it by the digest of its root."""

    def __init__(self, folder: Path, models_root: Path, **leader_env: str) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.processes: dict[str, Process] = {}
        self.roots = folder / "leader" / "roots.pem"
        env = {
            "SWARM_GRPC_PORT": self.address.rpartition(":")[2],
            "SWARM_TLS": "1",
            "SWARM_DATA_DIR": str(folder / "leader"),
            "SWARM_SERVABLE_MODELS_ROOT": str(models_root),
            "SWARM_HEARTBEAT_S": "0.5",
            **leader_env,
        }
        self.processes["leader"] = start("swarm_leader", log=folder / "leader.log", env=env)
        wait_for(lambda: self.roots.exists() and self.cli("status").returncode == 0, 60, "the leader", every_s=0.5)
        self.pin = json.loads(self.cli("trust", "roots", "--json").stdout)["sha256"]

    def start_fellow(self, name: str, **env: str) -> None:
        state = self.folder / name
        variables = {
            "SWARM_FELLOW_MODEL_CACHE": str(state / "models"),
            "SWARM_STAGE_THREADS": "1",
            "SWARM_LEADER_CA": f"sha256:{self.pin}",
            **env,
        }
        arguments = ("--leader", self.address, "--name", name, "--state-dir", state)
        self.processes[name] = start("swarm_fellow", *arguments, log=self.folder / f"{name}.log", env=variables)

    def cli(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "swarm_cli", *map(str, arguments)]
        known = {"SWARM_LEADER": self.address, "SWARM_LEADER_CA": str(self.roots), "NO_COLOR": "1", "COLUMNS": "160"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=180, env={**os.environ, **known, **env}, check=False
        )

    def wait_fellows(self, count: int) -> None:
        wait_for(lambda: self.cli("fellows").stdout.count("connected") >= count, 60, f"{count} fellows", every_s=0.5)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()


@pytest.fixture(scope="module")
def fleet(models_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedFleet]:
    """Leader, a relay of its own with a certificate that the leader issued, two fellows."""
    folder = tmp_path_factory.mktemp("encrypted")
    port = free_port()
    relay = {"SWARM_RELAY_SECRET": RELAY_SECRET, "SWARM_RELAY_ADDRESS": f"localhost:{port}"}
    running = EncryptedFleet(folder, models_root, **relay)
    try:
        issued = running.cli("trust", "issue", "--name", "localhost", "--out", folder / "relay-tls")
        assert issued.returncode == 0, issued.stderr
        env = {
            "SWARM_GRPC_PORT": str(port),
            "SWARM_RELAY_SECRET": RELAY_SECRET,
            "SWARM_TLS_CERT": str(folder / "relay-tls" / "cert.pem"),
            "SWARM_TLS_KEY": str(folder / "relay-tls" / "key.pem"),
        }
        running.processes["relay"] = start("swarm_leader", "relay", log=folder / "relay.log", env=env)
        for name in ("alice", "bob"):
            running.start_fellow(name)
        running.wait_fellows(2)
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize(("transport", "route"), [("p2p", "direct"), ("tunnel", "relay")])
def test_a_ring_of_encrypted_links_answers(fleet, transport, route):
    """Direct links are mutual TLS between the machines' certificates; the relay asks for the leader's tickets."""
    loaded = fleet.cli("model-load", MODEL, "--num-stages", 2, "--transport", transport, "--wait")
    reply = fleet.cli("infer", MODEL, "What is the capital of France?", "--temperature", 0)
    status = fleet.cli("status")
    fleet.cli("model-unload", MODEL)

    assert loaded.returncode == 0, loaded.stderr
    assert "Paris" in reply.stdout, reply.stderr
    assert status.stdout.count(route) >= 2, status.stdout


def test_whoever_does_not_know_the_leader_is_told_why(fleet):
    plain = fleet.cli("status", SWARM_LEADER_CA="")
    pinned = fleet.cli("status", SWARM_LEADER_CA=f"sha256:{fleet.pin}")
    wrong = fleet.cli("status", SWARM_LEADER_CA="sha256:" + "ab" * 32)

    assert pinned.returncode == 0, pinned.stderr
    assert plain.returncode == 3 and "speaks TLS" in plain.stderr
    assert wrong.returncode != 0 and fleet.pin in wrong.stderr and "abab" in wrong.stderr


def test_keys_are_readable_by_their_owner_alone(fleet):
    keys = [fleet.folder / "relay-tls" / "key.pem", fleet.folder / "leader" / "authority.pem"]
    keys += [fleet.folder / name / "tls" / "node.key" for name in ("alice", "bob")]

    assert [oct(key.stat().st_mode & 0o077) for key in keys] == ["0o0"] * 4
