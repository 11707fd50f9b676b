"""A swarm to hurt: its processes by name, as `swarm up` or started one by one, with lines that can be cut."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil

from tests.delaying_proxy import ProxyProcess, start_proxy
from tests.e2e.chaos.background import Background
from tests.e2e.conftest import MODEL
from tests.e2e.swarm import Process, Swarm, free_port, is_alive, run_cli, start, swarm_up, wait_for

ASK_S = 10.0
READY_S = 120.0
SECRET = "a secret of one test run only"
# As installed, but for threads: several stages share two cores.
SETTINGS = {"SWARM_STAGE_THREADS": "1", "SWARM_STAGE_SPARE": "on", "SWARM_MIN_FREE_DISK_GB": "0"}


class Fleet(Protocol):
    """What faults and the driver need to know of a swarm."""

    http: str
    grpc: str

    def pid(self, name: str) -> int:
        """Of the process that has the name now: "leader", "gateway", "relay", "fellow-1" ..."""

    def names(self) -> list[str]:
        """Of every process but the stages."""

    def bring_back(self) -> None:
        """Start again what died and is not started again by itself; mend every line."""


def get(fleet: Fleet, path: str) -> dict:
    """A JSON route of the gateway; {} while nothing answers."""
    try:
        with urllib.request.urlopen(fleet.http + path, timeout=ASK_S) as response:
            return json.load(response)
    except (OSError, urllib.error.URLError, json.JSONDecodeError):
        return {}


def status(fleet: Fleet, model: str = MODEL) -> dict:
    """Of a model; {} while nobody says."""
    return get(fleet, f"/api/v1/models/{model}/status")


def is_ready(fleet: Fleet, model: str = MODEL) -> bool:
    """Whether a model serves."""
    return status(fleet, model).get("state") == "PLACEMENT_STATE_READY"


def holder(fleet: Fleet, stage_index: int, model: str = MODEL) -> str:
    """Name of the fellow that has a stage."""
    return holders(fleet, model)[stage_index]


def holders(fleet: Fleet, model: str = MODEL) -> list[str]:
    """Names of the fellows that have the stages of a model, in order."""
    return [stage["fellow_name"] for stage in status(fleet, model)["stages"]]


def incidents(fleet: Fleet, since_unix_s: float = 0.0) -> list[dict]:
    """What broke and what was done about it, newest first."""
    told = get(fleet, "/api/v1/incidents?page_size=200").get("incidents", [])
    return [one for one in told if float(one.get("opened_s", 0)) >= since_unix_s]


def stage_processes(fellow_pid: int) -> list[psutil.Process]:
    """Stage processes below a fellow; the one that holds most memory, which has the weights, comes first."""
    try:
        children = psutil.Process(fellow_pid).children(recursive=True)
        stages = [child for child in children if "swarm_stage" in " ".join(child.cmdline())]
        return sorted(stages, key=lambda child: -child.memory_info().rss)
    except psutil.NoSuchProcess:
        return []


class UpFleet:
    """`swarm up`, which starts again what dies."""

    def __init__(self, swarm: Swarm) -> None:
        self.http, self.grpc, self._swarm = swarm.http, swarm.grpc, swarm

    def pid(self, name: str) -> int:
        return self._named()[name]

    def names(self) -> list[str]:
        return [name for name in self._named() if "@" not in name]

    def bring_back(self) -> None:
        return None

    def _named(self) -> dict[str, int]:
        return json.loads((self._swarm.data_dir / "ready.json").read_text())["processes"]


@contextmanager
def up_fleet(folder: Path, models_root: Path, fellows: int, stages: int, **env: str) -> Iterator[UpFleet]:
    """While inside; the model is ready."""
    options = ("--fellows", fellows, "--stages", stages, "--model", MODEL, "--model-dir", models_root)
    with swarm_up(folder, *options, env=SETTINGS | env) as swarm:
        yield UpFleet(swarm)


class MadeFleet:
    """A leader, a gateway, fellows, and on wish a relay of its own; each fellow reaches leader and relay by lines.

    fellows: name -> its line to the leader, and rings: name -> its line to the relay, both as ports of the proxy.
    env: of each of its processes, beside SETTINGS.
    """

    def __init__(
        self, folder: Path, models_root: Path, background: Background, proxy: ProxyProcess, env: Mapping[str, str]
    ) -> None:
        self.http = f"http://127.0.0.1:{free_port()}"
        self.grpc = f"127.0.0.1:{free_port()}"
        self.relay = ""  # host:port of one of its own
        self.fellows: dict[str, int] = {}
        self.rings: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self.folder, self._models_root = folder, models_root
        self._background, self._proxy = background, proxy
        self._settings = SETTINGS | dict(env)

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def names(self) -> list[str]:
        return list(self.processes)

    def cut(self, line: int) -> None:
        """Break it, and refuse it until mended."""
        self._background.do(self._proxy.cut(line))

    def stall(self, line: int) -> None:
        """Half-open until mended."""
        self._background.do(self._proxy.stall(line))

    def mend(self, line: int) -> None:
        """As it was."""
        self._background.do(self._proxy.mend(line))

    def bring_back(self) -> None:
        for line in (*self.fellows.values(), *self.rings.values()):
            self.mend(line)
        for name, process in list(self.processes.items()):
            if not is_alive(process.pid):
                process.popen.wait()
                self.start(name)

    def start(self, name: str) -> None:
        """Start one by its name, with its folder and ports."""
        make = {"leader": self._leader, "gateway": self._gateway, "relay": self._relay}.get(name)
        self.processes[name] = make() if make else self._fellow(name)

    def start_all(self, fellows: int, own_relay: bool) -> None:
        """Until every fellow is connected."""
        if own_relay:
            self.relay = f"127.0.0.1:{free_port()}"
            self.start("relay")
        self.start("leader")
        wait_for(lambda: " ready on " in self.processes["leader"].tail(), READY_S, "the leader")
        for number in range(1, fellows + 1):
            name = f"fellow-{number}"
            self.fellows[name] = self._line(self.grpc)
            self.rings[name] = self._line(self.relay or self.grpc)
            self.start(name)
        self.start("gateway")
        wait_for(lambda: len(connected(self)) == fellows, READY_S, f"{fellows} connected fellows")

    def stop_all(self) -> None:
        """The leader last, so that fellows can say goodbye."""
        for process in reversed(list(self.processes.values())):
            process.stop()

    def _line(self, address: str) -> int:
        host, _, port = address.rpartition(":")
        return self._background.do(self._proxy.forward(host, int(port), 0.0))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _leader(self) -> Process:
        env = {
            **self._settings,
            "SWARM_GRPC_PORT": self.grpc.rpartition(":")[2],
            "SWARM_DATA_DIR": str(self.folder / "leader"),
            "SWARM_SERVABLE_MODELS_ROOT": str(self._models_root),
            "SWARM_RELAY_ADDRESS": self.relay,
            "SWARM_RELAY_SECRET": SECRET,
        }
        return start("swarm_leader", log=self._log("leader"), env=env)

    def _relay(self) -> Process:
        env = {**self._settings, "SWARM_GRPC_PORT": self.relay.rpartition(":")[2], "SWARM_RELAY_SECRET": SECRET}
        env["SWARM_DATA_DIR"] = str(self.folder / "relay")
        return start("swarm_leader", "relay", log=self._log("relay"), env=env)

    def _gateway(self) -> Process:
        env = {**self._settings, "SWARM_LEADER": self.grpc, "SWARM_HTTP_PORT": self.http.rpartition(":")[2]}
        return start("swarm_gateway", log=self._log("gateway"), env=env)

    def _fellow(self, name: str) -> Process:
        state = self.folder / name
        env = {"SWARM_FELLOW_MEMORY_MB": "2000", **self._settings, "SWARM_FELLOW_MODEL_CACHE": str(state / "models")}
        env["SWARM_RELAY"] = f"127.0.0.1:{self.rings[name]}"
        arguments = ("--leader", f"127.0.0.1:{self.fellows[name]}", "--name", name, "--state-dir", state)
        return start("swarm_fellow", *arguments, log=self._log(name), env=env)


def connected(fleet: Fleet) -> list[str]:
    """Names of the fellows that are there."""
    rows = get(fleet, "/api/v1/workers").get("fellows", [])
    return [row["name"] for row in rows if row.get("state") == "connected"]


@contextmanager
def made_fleet(
    folder: Path, models_root: Path, background: Background, fellows: int, own_relay: bool = False, **env: str
) -> Iterator[MadeFleet]:
    """While inside; nothing is loaded."""
    entered = start_proxy()
    proxy = background.do(entered.__aenter__())
    fleet = MadeFleet(folder, models_root, background, proxy, env)
    try:
        fleet.start_all(fellows, own_relay)
        yield fleet
    finally:
        fleet.stop_all()
        background.do(entered.__aexit__(None, None, None))


def load(
    fleet: Fleet, stages: int, transport: str, wait: bool = True, model: str = MODEL, fellows: Sequence[str] = ()
) -> None:
    """Load a model. wait: until it is ready. fellows: by name, in ring order; () is the leader's choice."""
    options = ["--num-stages", stages, "--transport", transport, *(("--wait",) if wait else ())]
    options += [word for name in fellows for word in ("--fellow", name)]
    loaded = run_cli("model-load", model, *options, leader=fleet.grpc)
    assert loaded.returncode == 0, loaded.stderr


def unload(fleet: Fleet, model: str = MODEL) -> None:
    """Until nothing is held."""
    ended = run_cli("model-unload", model, leader=fleet.grpc)
    assert ended.returncode == 0, ended.stderr
