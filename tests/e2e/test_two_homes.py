"""Two machines behind two routers that let nothing in: the chat works, through the relay."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.homes import HOME_ADDRESS, WAN_ADDRESS, two_homes, why_not
from tests.e2e.swarm import start, wait_for

PORT = 50551

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "namespaces work")


def test_a_chat_over_two_homes_that_cannot_reach_each_other(models_root, tmp_path):
    with two_homes() as homes:
        processes = []

        def run(name, where, module, *arguments, env):
            env = {"SWARM_ALLOW_INSECURE": "1", "SWARM_HEARTBEAT_S": "0.5", **env}
            log = tmp_path / f"{name}.log"
            processes.append(start(module, *arguments, log=log, env=env, prefix=homes.inside(where)))

        def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
            command = [*homes.inside(homes.wan), sys.executable, "-m", "swarm_cli", "--leader", f"{WAN_ADDRESS}:{PORT}"]
            return subprocess.run(
                [*command, *map(str, arguments)], capture_output=True, text=True, timeout=180, check=False
            )

        try:
            leader_env = {
                "SWARM_LEADER_HOST": WAN_ADDRESS,
                "SWARM_GRPC_PORT": str(PORT),
                "SWARM_DATA_DIR": str(tmp_path / "leader"),
                "SWARM_SERVABLE_MODELS_ROOT": str(models_root),
                "SWARM_JOIN_TOKEN": "open-sesame",
            }
            run("leader", homes.wan, "swarm_leader", env=leader_env)
            for name, home in (("alice", homes.home_a), ("bob", homes.home_b)):
                state = tmp_path / name
                fellow_env = {
                    "SWARM_FELLOW_MODEL_CACHE": str(state / "models"),
                    "SWARM_RING_BIND_HOST": "0.0.0.0",
                    "SWARM_STAGE_THREADS": "1",
                }
                arguments = ("--leader", f"{WAN_ADDRESS}:{PORT}", "--join-token", "open-sesame", "--name", name)
                run(name, home, "swarm_fellow", *arguments, "--state-dir", state, env=fellow_env)
            wait_for(lambda: both_connected(cli("fellows").stdout), 60, "two fellows", every_s=0.5)
            assert not homes.can_reach(homes.wan, HOME_ADDRESS, 22)
            assert not homes.can_reach(homes.home_a, "10.99.0.3", PORT)

            loaded = cli("model-load", MODEL, "--num-stages", 2, "--wait")
            reply = cli("infer", MODEL, "What is the capital of France?", "--temperature", 0)
            status = cli("status")
        finally:
            for process in reversed(processes):
                process.stop()

    assert loaded.returncode == 0, loaded.stderr
    assert "Paris" in reply.stdout, reply.stderr
    assert status.stdout.count("relay") >= 2


def both_connected(listing: str) -> bool:
    return listing.count("connected") >= 2
