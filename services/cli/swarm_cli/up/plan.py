"""Which processes `swarm up` starts, and how each is configured. Pure: options and facts in, specs out."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm_cli.up.options import HOST, Machine, UpOptions

LEADER = "leader"
GATEWAY = "gateway"
FELLOW = "fellow"
# Nothing of it leaves this machine, so nothing of it speaks TLS; what is set is for another leader.
_TLS_SETTINGS = ("SWARM_LEADER_CA", "SWARM_TLS", "SWARM_TLS_CERT", "SWARM_TLS_KEY")
# What the leader and the gateway would read, and `swarm up` chooses itself.
_CHOSEN_HERE = (
    "SWARM_LEADER_HOST",
    "SWARM_GRPC_PORT",
    "SWARM_GATEWAY_HOST",
    "SWARM_HTTP_PORT",
    "SWARM_METRICS_LISTEN",
    *_TLS_SETTINGS,
)
# What only some processes have business with; every other gets none of it.
_SECRETS = {
    "SWARM_API_KEY": (),
    "SWARM_API_KEY_FILE": (),
    "SWARM_DATABASE_URL": (LEADER,),
    "SWARM_RELAY_SECRET": (LEADER,),
    "SWARM_JOIN_TOKEN": (LEADER, FELLOW),
    "SWARM_CALLER_SECRET": (GATEWAY,),
    "HF_TOKEN": (LEADER, FELLOW),
    "HUGGING_FACE_HUB_TOKEN": (LEADER,),
}
MEMORY_SHARE = 0.8  # of what is free; the rest is for the leader, the gateway and the page cache


@dataclass(frozen=True)
class ChildSpec:
    """One process. environ: all of it. log: file its stdout and stderr go to; None shares the terminal."""

    name: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path | None


def plan_children(
    options: UpOptions, machine: Machine, environ: Mapping[str, str], join_token: str = ""
) -> list[ChildSpec]:
    """The leader first, then the gateway, then the fellows. What the environment sets for a fellow wins.

    join_token: what the fellows join with; "" is none.
    """
    address = f"{HOST}:{options.grpc_port}"
    leader_environ = {**_without_secrets(environ, LEADER), **_leader_environ(options)}
    leader = ChildSpec(LEADER, _python("swarm_leader"), leader_environ, _log(options, LEADER))
    gateway_environ = {"SWARM_LEADER": address, "SWARM_GATEWAY_HOST": HOST, "SWARM_HTTP_PORT": str(options.http_port)}
    gateway_environ = {**_without_secrets(environ, GATEWAY), **gateway_environ}
    gateway = ChildSpec(GATEWAY, _python("swarm_gateway"), gateway_environ, _log(options, GATEWAY))
    inherited = _without_secrets(environ, FELLOW) | ({"SWARM_JOIN_TOKEN": join_token} if join_token else {})
    return [leader, gateway, *(_fellow(name, address, options, machine, inherited) for name in fellow_names(options))]


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Addresses the environment sets in vain: everything listens on loopback, at the ports of the options."""
    return [name for name in _CHOSEN_HERE if environ.get(name)]


def plan_chat(options: UpOptions, model_id: str, environ: Mapping[str, str]) -> ChildSpec:
    """The chat, on the supervisor's own terminal."""
    arguments = _python("swarm_cli", "chat", model_id, "--leader", f"{HOST}:{options.grpc_port}")
    # A token that is set wins; without one it finds the leader's own by the folder.
    return ChildSpec(
        "chat", arguments, {**environ, "SWARM_LEADER_CA": "", "SWARM_DATA_DIR": str(leader_folder(options))}, None
    )


def leader_folder(options: UpOptions) -> Path:
    """Where the leader keeps its state."""
    return options.data_dir / LEADER


def fellow_names(options: UpOptions) -> list[str]:
    """fellow-1, fellow-2 ..."""
    return [f"fellow-{number}" for number in range(1, options.fellows + 1)]


def metrics_urls(options: UpOptions) -> dict[str, str]:
    """Process -> where Prometheus reads its figures; empty when they are off."""
    return {name: f"http://{HOST}:{port}/metrics" for name, port in _scraped(options).items()}


def scrape_targets(options: UpOptions) -> list[dict[str, object]]:
    """The same, as a document for Prometheus' file_sd_configs."""
    scraped = _scraped(options)
    return [{"targets": [f"{HOST}:{port}"], "labels": {"process": name}} for name, port in scraped.items()]


def _scraped(options: UpOptions) -> dict[str, int]:
    """Process -> port: the leader, the gateway, then the fellows."""
    ports = options.metrics_ports
    return {LEADER: ports[LEADER], GATEWAY: options.http_port, **ports} if ports else {}


def _metrics_environ(options: UpOptions, name: str) -> dict[str, str]:
    """Always set, so that one port of the environment is not taken by every process in turn."""
    port = options.metrics_ports.get(name)
    return {"SWARM_METRICS_LISTEN": f"{HOST}:{port}" if port else ""}


def _leader_environ(options: UpOptions) -> dict[str, str]:
    chosen = {
        "SWARM_DATA_DIR": str(leader_folder(options)),
        "SWARM_LEADER_HOST": HOST,
        "SWARM_GRPC_PORT": str(options.grpc_port),
        **_metrics_environ(options, LEADER),
    }
    if options.model_dir is not None:
        chosen["SWARM_SERVABLE_MODELS_ROOT"] = str(options.model_dir)
    return chosen


def _fellow(name: str, address: str, options: UpOptions, machine: Machine, environ: Mapping[str, str]) -> ChildSpec:
    state = options.data_dir / name
    arguments = _python("swarm_fellow", "--leader", address, "--name", name, "--state-dir", str(state))
    shares = {
        "SWARM_FELLOW_MEMORY_MB": str(int(machine.memory_free_bytes * MEMORY_SHARE / options.fellows / 2**20)),
        "SWARM_STAGE_THREADS": str(max(1, machine.cpu_count // options.fellows)),
    }
    # A cache of its own for each, as on machines of their own.
    owned = {"SWARM_FELLOW_MODEL_CACHE": str(state / "models"), **_metrics_environ(options, name)}
    return ChildSpec(name, arguments, {**shares, **environ, **owned}, _log(options, name))


def _without_secrets(environ: Mapping[str, str], process: str) -> dict[str, str]:
    """The environment without the secrets that are not this process's, and without what is for another leader."""
    kept = {name: text for name, text in environ.items() if name not in _TLS_SETTINGS}
    return {name: text for name, text in kept.items() if process in _SECRETS.get(name, (process,))}


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def _log(options: UpOptions, name: str) -> Path:
    return options.data_dir / "logs" / f"{name}.log"
