"""Two machines behind two routers that let nothing in: encrypted, known by join tokens, through the relay."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.homes import HOME_ADDRESS, TUNNEL_NETWORK, WAN_ADDRESS, two_homes, why_not
from tests.e2e.swarm import start, wait_for

PORT = 50551
ADDRESS = f"{WAN_ADDRESS}:{PORT}"

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces work")


class Internet:
    """Processes in the namespaces of two homes and of the leader, each with its log."""

    def __init__(self, homes, folder) -> None:
        self._homes = homes
        self._folder = folder
        self._leader_dir = folder / "leader"
        self.processes = []

    def run(self, name, where, module, *arguments, env):
        log = self._folder / f"{name}.log"
        process = start(module, *arguments, log=log, env=env, prefix=self._homes.inside(where))
        self.processes.append(process)
        return process

    def start_leader(self, models_root, **env: str) -> None:
        env = {
            "SWARM_LEADER_HOST": WAN_ADDRESS,
            "SWARM_GRPC_PORT": str(PORT),
            "SWARM_DATA_DIR": str(self._leader_dir),
            "SWARM_SERVABLE_MODELS_ROOT": str(models_root),
            "SWARM_HEARTBEAT_S": "0.5",
            **env,
        }
        self.run("leader", self._homes.wan, "swarm_leader", env=env)
        wait_for(lambda: self.cli("status").returncode == 0, 60, "the leader", every_s=0.5)

    def start_fellow(self, name, home, join_token, bind_host="0.0.0.0"):
        state = self._folder / name
        env = {
            "SWARM_JOIN_TOKEN": join_token,
            "SWARM_FELLOW_MODEL_CACHE": str(state / "models"),
            "SWARM_RING_BIND_HOST": bind_host,
            "SWARM_STAGE_THREADS": "1",
        }
        arguments = ("--leader", ADDRESS, "--name", name, "--state-dir", state)
        return self.run(name, home, "swarm_fellow", *arguments, env=env)

    def cli(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        known = {
            "SWARM_LEADER": ADDRESS,
            "SWARM_LEADER_CA": str(self._leader_dir / "roots.pem"),
            "SWARM_API_KEY_FILE": str(self._leader_dir / "admin-token"),
            "NO_COLOR": "1",
            **env,
        }
        settings = [f"{name}={value}" for name, value in known.items()]
        command = [*self._homes.inside(self._homes.wan), "env", *settings, sys.executable, "-m", "swarm_cli"]
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, timeout=180, check=False
        )

    def secrets_in_logs(self, *secrets: str) -> list[str]:
        logs = "".join(log.read_text(errors="replace") for log in self._folder.glob("*.log"))
        return [
            secret for secret in (*secrets, (self._leader_dir / "admin-token").read_text().strip()) if secret in logs
        ]


def test_a_chat_over_two_homes_that_cannot_reach_each_other(models_root, tmp_path):
    """Nothing is told to be insecure: TLS and tokens turn on by themselves, and a join token is all a home needs."""
    with two_homes() as homes:
        internet = Internet(homes, tmp_path)
        cli = internet.cli
        try:
            internet.start_leader(models_root)
            stranger = cli("status", SWARM_API_KEY_FILE="")
            made = cli("join-token", "create", "--uses", 2)
            join_token = made.stdout.strip()
            for name, home in (("alice", homes.home_a), ("bob", homes.home_b)):
                internet.start_fellow(name, home, join_token)
            wait_for(lambda: both_connected(cli("fellows").stdout), 60, "two fellows", every_s=0.5)
            third = internet.start_fellow("carol", homes.home_b, join_token)
            wait_for(lambda: "join token" in third.tail(), 60, "the refusal of a used up join token", every_s=0.5)
            third.stop()
            assert not homes.can_reach(homes.wan, HOME_ADDRESS, 22)
            assert not homes.can_reach(homes.home_a, "10.99.0.3", PORT)

            loaded = cli("model-load", MODEL, "--num-stages", 2, "--wait")
            reply = cli("infer", MODEL, "What is the capital of France?", "--temperature", 0)
            status = cli("status")
        finally:
            for process in reversed(internet.processes):
                process.stop()

    assert stranger.returncode != 0 and "token" in stranger.stderr
    assert made.returncode == 0 and join_token.count(".") == 1, made.stderr
    assert loaded.returncode == 0, loaded.stderr
    assert "Paris" in reply.stdout, reply.stderr
    assert status.stdout.count("relay") >= 2
    assert internet.secrets_in_logs(join_token.partition(".")[0]) == []


@pytest.mark.slow
def test_a_tunnel_between_homes_is_used_while_it_works_and_the_relay_while_it_does_not(models_root, tmp_path):
    """A tunnel that is switched off resets nothing: beats find it, the ring is relayed, and goes back by itself."""
    with two_homes() as homes:
        homes.add_tunnel()
        internet = Internet(homes, tmp_path)
        cli = internet.cli

        def ask() -> str:
            return cli("infer", MODEL, "What is the capital of France?", "--temperature", 0).stdout

        def until_ways(direct: int, within_s: float) -> None:
            wait_for(lambda: routes(cli("status").stdout) == direct, within_s, f"{direct} direct links", every_s=0.5)

        try:
            internet.start_leader(models_root, SWARM_ROUTE_RETRY_S="4", SWARM_MESH_NETWORKS=TUNNEL_NETWORK)
            join_token = cli("join-token", "create", "--uses", 2).stdout.strip()
            for name, home in (("alice", homes.home_a), ("bob", homes.home_b)):
                internet.start_fellow(name, home, join_token, bind_host="mesh")
            wait_for(lambda: both_connected(cli("fellows").stdout), 60, "two fellows", every_s=0.5)
            loaded = cli("model-load", MODEL, "--num-stages", 2, "--wait")
            until_ways(2, 10)
            replies = [ask()]
            homes.switch_tunnel(False)
            until_ways(0, 30)
            replies.append(ask())
            homes.switch_tunnel(True)
            until_ways(2, 60)
            replies.append(ask())
            meshed = cli("model-load", MODEL, "--num-stages", 2, "--transport", "mesh", "--plan")
        finally:
            for process in reversed(internet.processes):
                process.stop()

    assert loaded.returncode == 0, loaded.stderr
    assert "Paris" in replies[0] and len(set(replies)) == 1
    assert meshed.returncode == 0, meshed.stderr


def routes(status: str) -> int | None:
    """How many of a ready ring's two links are direct, as `swarm status` shows; None while it is not ready."""
    direct, relayed = status.count("direct"), status.count("relay")
    return direct if "ready" in status and direct + relayed == 2 else None


def both_connected(listing: str) -> bool:
    return listing.count("connected") >= 2
