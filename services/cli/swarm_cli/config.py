"""What the `swarm` command reads from the environment. Reads nothing itself."""

from dataclasses import dataclass

from swarm_core.config import env


@dataclass(frozen=True)
class CliConfig:
    """Settings of every command; an option on the command line wins."""

    leader: str = env("SWARM_LEADER", "127.0.0.1:50551", "the leader's gRPC address, HOST:PORT")
    leader_ca: str = env(
        "SWARM_LEADER_CA",
        "",
        "how the leader is known: a PEM file of roots, sha256:<hex> of its root, or 'system'; empty is the roots of a "
        "leader here, else plaintext, to this machine only",
    )
    allow_insecure: bool = env("SWARM_ALLOW_INSECURE", False, "talk to a leader on another machine without TLS")
    call_timeout_s: float = env("SWARM_CLI_TIMEOUT_S", 20.0, "how long a short call of `swarm` may take, seconds")
    load_timeout_s: float = env(
        "SWARM_CLI_LOAD_TIMEOUT_S", 3600.0, "how long `swarm` waits for an import or a load, seconds"
    )
    reply_timeout_s: float = env("SWARM_CLI_REPLY_TIMEOUT_S", 600.0, "how long one reply may take, seconds")
    gateway_url: str = env(
        "SWARM_GATEWAY_URL", "http://127.0.0.1:8080", "the OpenAI endpoint that `swarm bench` measures"
    )
    api_key: str = env(
        "SWARM_API_KEY",
        "",
        "the token every command presents; else SWARM_API_KEY_FILE, else that of a leader here",
    )
    api_key_file: str = env("SWARM_API_KEY_FILE", "", "a file that holds the token")
    data_dir: str = env(
        "SWARM_DATA_DIR", "", "the folder of a leader on this machine, whose admin token and roots need not be set"
    )
