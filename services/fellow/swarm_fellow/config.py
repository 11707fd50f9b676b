"""What a fellow can be told by its environment, one frozen field a variable. Reads no environment itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swarm_core.config import env, from_environment
from swarm_core.errors import BadRequest
from swarm_core.listen import check_bind_host, split_host_port
from swarm_core.manifest_parts import is_endpoint
from swarm_core.metrics_listener import check_metrics_listen
from swarm_rpc.leader_trust import pin_of

from swarm_fellow.domain.spare import MODES as SPARE_MODES
from swarm_fellow.domain.state_folder import LEADER_ROOTS

STATE_DIR = Path("~/.silent-swarm/fellow")
MODEL_CACHE = Path("~/.silent-swarm/models")
ATTENTION = ("auto", "grouped", "sdpa")
LORA = ("lean", "lean16", "peft")
FOURBIT_FLOAT32 = ("auto", "off")
BENCHMARK = ("auto", "off")
FOURBIT_ROWS = (*FOURBIT_FLOAT32, *map(str, range(1, 8)))
IN_FLIGHT_LIMIT = 1024  # open replies a fellow could ever keep apart; guards against a mistyped variable


@dataclass(frozen=True)
class FellowConfig:
    """Every SWARM_* variable a fellow reads."""

    leader: str = env("SWARM_LEADER", "", "host:port of the leader's gRPC port; the only address a fellow dials itself")
    join_token: str = env("SWARM_JOIN_TOKEN", "", "token that lets this machine join, when the leader asks for one")
    join_token_file: str = env("SWARM_JOIN_TOKEN_FILE", "", "a file that holds the join token")
    leader_ca: str = env(
        "SWARM_LEADER_CA",
        "",
        "how the leader is known: a PEM file of roots, sha256:<hex> of its root, or 'system'; empty is the pin in the "
        "join token, or without one plaintext",
    )
    name: str = env("SWARM_FELLOW_NAME", "", "name of this machine for people; default its host name")
    pool: str = env(
        "SWARM_POOL", "", "the pool this machine joins: lower-case letters, digits and dashes; empty is main"
    )
    state_dir: Path = env("SWARM_FELLOW_STATE_DIR", STATE_DIR, "identity, sockets and stage logs of this fellow")  # noqa: RUF009
    model_cache: Path = env("SWARM_FELLOW_MODEL_CACHE", MODEL_CACHE, "downloaded model cache")  # noqa: RUF009
    local_models: str = env(
        "SWARM_FELLOW_LOCAL_MODELS",
        "",
        "folders with models on this machine, separated by ':' (Hugging Face folders, shards of a training); tensors "
        "found there are copied instead of fetched when their bytes are right",
    )
    hf_endpoint: str = env(
        "HF_ENDPOINT", "", "the hub to ask for models whose weights lie on one; default what the model says"
    )
    hf_token: str = env("HF_TOKEN", "", "token for that hub; sent nowhere else")
    cache_max_gb: float = env(
        "SWARM_FELLOW_CACHE_MAX_GB",
        0.0,
        "what the model cache may take, in GiB, before the least recently used files are dropped; 0 drops them only "
        "when the disk is short; what a stage needs always stays",
    )
    loaded_models_max: int = env(
        "SWARM_MAX_LOADED_MODELS", 1, "models held at once; the oldest is evicted before one more starts"
    )
    idle_unload_s: float = env(
        "SWARM_MODEL_IDLE_UNLOAD_S", 900.0, "seconds without a request after which a model is unloaded; 0 never"
    )
    prefill_chunk_tokens: int = env(
        "SWARM_SERVE_PREFILL_CHUNK", 256, "prompt tokens per piece sent through the stages; 0 sends a prompt whole"
    )
    tape_mb: int = env(
        "SWARM_SERVE_TAPE_MB",
        256,
        "MiB of a stage's output kept, so that a lost next stage is rebuilt without computing prompts again; 0: none",
    )
    in_flight_max: int = env(
        "SWARM_SERVE_MAX_IN_FLIGHT", 8, "requests a stage holds at once, served or waiting their turn"
    )
    batch_max: int = env(
        "SWARM_SERVE_MAX_BATCH",
        0,
        "most replies in one decode step where this fellow holds stage 0 and the leader sets no cap; 0, and a leader's "
        "-1, is all in flight, 1 one at a time",
    )
    attention: str = env(
        "SWARM_SERVE_ATTENTION",
        "auto",
        "'grouped' shares a key/value head with its query heads instead of copying it for each, 'sdpa' never does, "
        "'auto' where it is faster",
    )
    lora: str = env(
        "SWARM_SERVE_LORA",
        "lean",
        "how adapters that are not merged are computed: 'lean' in float32, 'lean16' in the stage's own type, 'peft' by "
        "that library",
    )
    fourbit_rows: str = env(
        "SWARM_SERVE_4BIT_ROWS",
        "auto",
        "4-bit products of up to 8 rows are split into calls of the row count a card runs fastest: 'auto' as measured "
        "at load, 'off', or the most rows of a call, 1 to 7",
    )
    fourbit_float32: str = env(
        "SWARM_SERVE_4BIT_FLOAT32",
        "auto",
        "4-bit products run in float32 for the row counts where a card is clearly faster that way: 'auto' as measured "
        "at load, or 'off'",
    )
    step_costs: bool = env(
        "SWARM_SERVE_STEP_COSTS", False, "every load here measures its step costs and the link, into the stage's log"
    )
    ring_bind_host: str = env(
        "SWARM_RING_BIND_HOST",
        "127.0.0.1",
        "where the stages listen for direct links: an address, an interface such as wg0, or mesh for whichever overlay "
        "network this machine is in; set but empty uses the relay alone",
    )
    ring_advertise_host: str = env(
        "SWARM_RING_ADVERTISE_HOST",
        "",
        "host other machines dial for direct links; default the bind host, or the outward address when that is 0.0.0.0",
    )
    memory_mb: int = env(
        "SWARM_FELLOW_MEMORY_MB", 0, "main memory this machine lends, in MiB; 0 lends what is available"
    )
    stage_threads: int = env("SWARM_STAGE_THREADS", 0, "compute threads of a stage; 0 is the number of processors")
    stage_silent_max_s: float = env(
        "SWARM_STAGE_SILENT_S", 30.0, "seconds a stage may leave its status unanswered before it counts as crashed"
    )
    stage_spare: str = env(
        "SWARM_STAGE_SPARE",
        "auto",
        "while a stage is held, one more process that has imported all it needs waits for the next load: 'on', 'off', "
        "or 'auto' where 2.5 GiB of main memory are free",
    )
    stage_device: str = env(
        "SWARM_STAGE_DEVICE", "", "'cpu' or 'cuda:0': where stages run; default the roomiest usable card, else cpu"
    )
    benchmark: str = env(
        "SWARM_FELLOW_BENCHMARK",
        "auto",
        "'auto' measures once, for half a second a device and kept for 30 days, how fast this machine multiplies: "
        "plans of first tokens need it; 'off' never",
    )
    allow_insecure: bool = env(
        "SWARM_ALLOW_INSECURE", False, "listen beyond this machine, and talk to a leader on another, without TLS"
    )
    metrics_listen: str = env("SWARM_METRICS_LISTEN", "", "HOST:PORT that answers Prometheus; empty is off")
    log_level: str = env("SWARM_LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR")
    log_json: bool = env("SWARM_LOG_JSON", False, "write log lines as JSON")
    relay: str = env("SWARM_RELAY", "", "host:port of a relay of its own; default the leader's address")
    disable_capabilities: str = env(
        "SWARM_FELLOW_DISABLE_CAPABILITIES",
        "",
        "comma separated capability fields not to declare (docs/capabilities.md), for staged rollouts and tests",
    )

    @property
    def local_folders(self) -> list[Path]:
        """Folders of this machine to look for tensors in."""
        return [Path(folder).expanduser() for folder in self.local_models.split(":") if folder.strip()]

    @property
    def withheld(self) -> frozenset[str]:
        """Names of the capability fields not to declare."""
        return frozenset(name.strip() for name in self.disable_capabilities.split(",") if name.strip())

    @property
    def knows_leader(self) -> bool:
        """Whether the leader is reached in TLS, as far as settings tell."""
        return bool(self.leader_ca or pin_of(self.join_token) or (self.state_dir / LEADER_ROOTS).exists())

    @property
    def bind_host(self) -> str:
        """Host the stages listen on; empty when they do not listen."""
        return "" if "direct_link" in self.withheld else self.ring_bind_host.strip("[]")


def read_config(environ: Mapping[str, str], **overrides: object) -> FellowConfig:
    """The configuration, checked; an override that is not None wins. Raises BadRequest naming the variable."""
    if environ.get("SWARM_RING_BIND_HOST") == "":
        overrides["ring_bind_host"] = ""  # elsewhere empty means unset; here it is the way to say "do not listen"
    config = from_environment(FellowConfig, environ, **overrides)
    if config.join_token_file and not config.join_token:
        config = replace(config, join_token=_read_secret(config.join_token_file, "SWARM_JOIN_TOKEN_FILE"))
    config = replace(config, state_dir=config.state_dir.expanduser(), model_cache=config.model_cache.expanduser())
    check_config(config)
    return config


def check_config(config: FellowConfig) -> None:
    """Refuse what cannot work, naming the variable and what it must be. Raises BadRequest."""
    if not config.leader:
        raise BadRequest(
            "no leader to join: pass --leader HOST:PORT or set SWARM_LEADER (its gRPC port, 50551 by default)",
            field="SWARM_LEADER",
        )
    split_host_port(config.leader)
    if config.relay:
        split_host_port(config.relay)
    if config.bind_host:
        # The leader's certificate for this machine makes links TLS; without one its stages do not listen.
        check_bind_host(config.bind_host, config.allow_insecure, has_tls=config.knows_leader)
    check_metrics_listen(config.metrics_listen, config.allow_insecure)
    if config.hf_endpoint and not is_endpoint(config.hf_endpoint):
        raise BadRequest(
            f"HF_ENDPOINT={config.hf_endpoint[:100]!r} is not the http:// or https:// address of a hub",
            field="HF_ENDPOINT",
        )
    _check_range("SWARM_FELLOW_CACHE_MAX_GB", config.cache_max_gb, 0, 2**20)
    _check_range("SWARM_MAX_LOADED_MODELS", config.loaded_models_max, 1, 64)
    _check_range("SWARM_MODEL_IDLE_UNLOAD_S", config.idle_unload_s, 0, 10**9)
    _check_range("SWARM_SERVE_PREFILL_CHUNK", config.prefill_chunk_tokens, 0, 2**31 - 1)
    _check_range("SWARM_SERVE_TAPE_MB", config.tape_mb, 0, 2**20)
    _check_range("SWARM_SERVE_MAX_IN_FLIGHT", config.in_flight_max, 1, IN_FLIGHT_LIMIT)
    _check_range("SWARM_SERVE_MAX_BATCH", config.batch_max, -1, IN_FLIGHT_LIMIT)
    _check_range("SWARM_FELLOW_MEMORY_MB", config.memory_mb, 0, 2**30)
    _check_range("SWARM_STAGE_THREADS", config.stage_threads, 0, 1024)
    _check_range("SWARM_STAGE_SILENT_S", config.stage_silent_max_s, 1, 86_400)
    _check_one_of("SWARM_SERVE_ATTENTION", config.attention, ATTENTION)
    _check_one_of("SWARM_FELLOW_BENCHMARK", config.benchmark, BENCHMARK)
    _check_one_of("SWARM_SERVE_LORA", config.lora, LORA)
    _check_one_of("SWARM_SERVE_4BIT_ROWS", config.fourbit_rows, FOURBIT_ROWS)
    _check_one_of("SWARM_SERVE_4BIT_FLOAT32", config.fourbit_float32, FOURBIT_FLOAT32)
    _check_one_of("SWARM_STAGE_SPARE", config.stage_spare, SPARE_MODES)
    device, _, card = config.stage_device.partition(":")
    if config.stage_device not in ("", "cpu") and not (device == "cuda" and card.isdigit()):
        raise BadRequest(
            f"SWARM_STAGE_DEVICE={config.stage_device!r} is not a device; use cpu, or cuda:0 for the first card",
            field="SWARM_STAGE_DEVICE",
        )


def _read_secret(file: str, variable: str) -> str:
    """The one line of a file. Raises BadRequest that names the variable."""
    try:
        secret = Path(file).expanduser().read_text()[:1024].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it holds no text"
        raise BadRequest(f"{variable}: {file} cannot be read: {why}", field=variable) from None
    if not secret:
        raise BadRequest(f"{variable}: {file} is empty", field=variable)
    return secret


def _check_one_of(variable: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        raise BadRequest(f"{variable}={word!r} must be one of {', '.join(words)}", field=variable)


def _check_range(variable: str, number: float, lowest: float, highest: float) -> None:
    if not lowest <= number <= highest:
        raise BadRequest(f"{variable}={number:g} must be from {lowest:g} to {highest:g}", field=variable)
