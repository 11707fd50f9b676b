"""What an operator can set on a leader. Every field names its variable; unset ones work. Reads no environment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swarm_core.config import env
from swarm_core.errors import BadRequest
from swarm_core.listen import check_bind_host, is_loopback, tls_files, tls_is_on
from swarm_core.metrics_listener import check_metrics_listen

from swarm_leader.domain.callers import CALLER_FORM, is_caller
from swarm_leader.domain.planning.mesh import read_networks
from swarm_leader.domain.planning.plan import ServeDefaults
from swarm_leader.domain.records import Transport
from swarm_leader.telemetry.alert_ways import Email, Webhook
from swarm_leader.telemetry.replacement import Replace

BY_CARDS = -1
SECRET_MIN = 16  # characters
BATCH_LIMIT = 1024  # as many replies as a fellow could ever hold; guards against a mistyped variable
COVER_MODES = ("auto", "hot", "warm", "off")
WEIGHTS = (0.001, 1000.0)
DATA_DIR = Path("~/.silent-swarm/leader").expanduser()


@dataclass(frozen=True)
class LeaderConfig:
    """The leader and its embedded relay; `swarm-leader relay` reads the same variables."""

    host: str = env("SWARM_LEADER_HOST", "127.0.0.1", "address to listen on")
    grpc_port: int = env("SWARM_GRPC_PORT", 50551, "gRPC port; 0 takes a free one")
    data_dir: Path = env("SWARM_DATA_DIR", DATA_DIR, "the leader's own folder")  # noqa: RUF009
    database_url: str = env("SWARM_DATABASE_URL", "", "sqlite or postgresql URL; empty is leader.db in the data folder")
    servable_models_root: str = env("SWARM_SERVABLE_MODELS_ROOT", "", "servables; unset is below the data folder")
    import_roots: str = env(
        "SWARM_IMPORT_ROOTS",
        "",
        "folders an import may read, a colon between two; unset: any for callers on this machine, none for others",
    )
    min_free_disk_gb: float = env("SWARM_MIN_FREE_DISK_GB", 1.0, "not ready with less disk free than this, in GB")
    require_api_token: bool = env(
        "SWARM_REQUIRE_API_TOKEN",
        False,
        "ask everyone for a token, even when there is none yet; beyond loopback this is always so",
    )
    join_token: str = env(
        "SWARM_JOIN_TOKEN",
        "",
        "a join token of your own, for any number of machines and for ever; empty: only those of `swarm join-token "
        "create` let machines join, and where no token is asked for any machine may",
    )
    allow_insecure: bool = env("SWARM_ALLOW_INSECURE", False, "listen beyond loopback without TLS")
    tls: str = env(
        "SWARM_TLS",
        "auto",
        "1 speaks TLS, 0 does not; auto does with files of its own and when listening beyond loopback",
    )
    tls_cert: str = env(
        "SWARM_TLS_CERT", "", "PEM file of a certificate of your own, with what leads to its root; empty makes one"
    )
    tls_key: str = env("SWARM_TLS_KEY", "", "PEM file of its key")
    tls_names: str = env(
        "SWARM_TLS_NAMES", "", "further DNS names and addresses of the certificate that is made, comma separated"
    )

    heartbeat_s: float = env("SWARM_HEARTBEAT_S", 3.0, "how often a fellow reports, in seconds")
    lease_s: float = env("SWARM_LEASE_S", 9.0, "a fellow is lost after this long without a report, in seconds")
    recover_s: float = env(
        "SWARM_RECOVER_S", 30.0, "how long fellows have to return when the leader starts, in seconds"
    )
    heal_wait_s: float = env(
        "SWARM_HEAL_WAIT_S",
        8.0,
        "how long a stage that nobody can hold waits for its fellow, or another, before its model is loaded anew over "
        "what is left, or fails; in seconds",
    )

    load_timeout_s: float = env("SWARM_LOAD_TIMEOUT_S", 900.0, "longest fetch and build of a stage, in seconds")
    wire_timeout_s: float = env("SWARM_WIRE_TIMEOUT_S", 10.0, "longest wait for one link between stages, in seconds")
    probe_timeout_s: float = env("SWARM_PROBE_TIMEOUT_S", 30.0, "longest lap of the first position, in seconds")
    unload_timeout_s: float = env("SWARM_UNLOAD_TIMEOUT_S", 15.0, "longest wait for a stage to end, in seconds")

    context_tokens: int = env("SWARM_SERVE_CONTEXT_TOKENS", 4096, "longest conversation a model must take, tokens")
    typical_tokens: int = env("SWARM_SERVE_TYPICAL_TOKENS", 1024, "a typical chat; sizes the KV budget, tokens")
    in_flight: int = env("SWARM_SERVE_IN_FLIGHT", 0, "replies in a ring at once; 0 is four per stage")
    batch_max: int = env(
        "SWARM_SERVE_MAX_BATCH",
        BY_CARDS,
        "most replies in one decode step, whatever a fellow says; 0 sets no cap, -1 only one for cards before Ampere",
    )
    step_costs: bool = env("SWARM_SERVE_STEP_COSTS", False, "stages measure a step's costs after load, into their log")
    serve_dtype: str = env("SWARM_SERVE_DTYPE", "", "F32, F16 or BF16; empty is what the fellows compute in")
    pipeline_transport: str = env("SWARM_PIPELINE_TRANSPORT", "auto", "auto, tunnel, p2p or mesh, unless a load says")
    route_retry_s: float = env(
        "SWARM_ROUTE_RETRY_S",
        300.0,
        "how often a relayed link that should be direct is tried again, in seconds; the wait doubles after each try in "
        "vain, up to an hour; 0 never tries",
    )
    mesh_networks: str = env(
        "SWARM_MESH_NETWORKS",
        "",
        "networks beside Tailscale's that count as an overlay for the transport mesh, such as 10.8.0.0/24,fd00:8::/64",
    )

    queue_max: int = env(
        "SWARM_SERVE_QUEUE_MAX", 64, "replies that may wait for one model; one caller alone gets three quarters of it"
    )
    caller_weights: str = env(
        "SWARM_CALLER_WEIGHTS", "", "callers' shares of a busy ring, such as name=3,other=0.5; others have 1"
    )
    event_queue_max: int = env("SWARM_EVENT_QUEUE_MAX", 1024, "events a slow reader may be behind before it is cut off")
    request_timeout_s: float = env("SWARM_REQUEST_TIMEOUT_S", 600.0, "longest reply from request to end, in seconds")
    progress_timeout_s: float = env("SWARM_PROGRESS_TIMEOUT_S", 60.0, "longest silence within a reply, in seconds")
    hold_s: float = env(
        "SWARM_HOLD_S",
        60.0,
        "how long a reply waits for its broken ring, and a request for a model that heals, in seconds; fellows keep "
        "replies as long that lost their leader; 0 does neither",
    )

    covers: str = env(
        "SWARM_COVERS",
        "auto",
        "stages of ready models held a second time, on fellows outside of their ring, for the day their own is lost: "
        "'hot' loaded, 'warm' only their files, 'auto' hot where memory is free and warm elsewhere, or 'off'",
    )
    cover_reserve_mb: int = env("SWARM_COVER_RESERVE_MB", 1024, "memory of a fellow that hot covers leave free, in MiB")

    relay_address: str = env("SWARM_RELAY_ADDRESS", "", "HOST:PORT of a relay of its own; empty is this leader's")
    relay_secret: str = env(
        "SWARM_RELAY_SECRET",
        "",
        "by what a leader and a relay of its own know stages, the same on both, 16 characters or more; empty draws one "
        "for the relay within the leader at every start",
    )
    relay_memory_mb: int = env(
        "SWARM_RELAY_MEMORY_MB", 1024, "frames the relay holds in all, in MiB; then its fullest channel breaks"
    )
    relay_queue_max: int = env("SWARM_RELAY_QUEUE_MAX", 64, "frames the relay holds per channel before a sender waits")
    relay_max_frame_mb: int = env("SWARM_RELAY_MAX_FRAME_MB", 64, "largest frame the relay takes, in MiB")
    relay_put_timeout_s: float = env("SWARM_RELAY_PUT_TIMEOUT_S", 30.0, "a channel full this long breaks, in seconds")

    replacing: str = env(
        "SWARM_REPLACE",
        "off",
        "what is done about a machine that is graded F for 5 minutes while others do well: off, suggest (an event, an "
        "alert) or on (it is drained)",
    )
    alert_webhook: str = env(
        "SWARM_ALERT_WEBHOOK", "", "https address that alerts are posted to as JSON; empty is none"
    )
    alert_secret: str = env("SWARM_ALERT_SECRET", "", "signs what is posted there (HMAC-SHA256); empty does not sign")
    alert_smtp_url: str = env(
        "SWARM_ALERT_SMTP_URL", "", "smtp[s]://[USER:PASSWORD@]HOST[:PORT] that takes alerts as mail; empty is none"
    )
    alert_to: str = env("SWARM_ALERT_TO", "", "e-mail addresses of whom alerts go to, comma separated")
    logs_max_mb: int = env(
        "SWARM_LOGS_MAX_MB", 256, "room for the logs of all fellows, in MiB, at most 2 for each; 0 keeps none"
    )

    metrics_listen: str = env("SWARM_METRICS_LISTEN", "", "HOST:PORT that answers Prometheus; empty is off")
    log_level: str = env("SWARM_LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR")
    log_json: bool = env("SWARM_LOG_JSON", False, "log lines as JSON")

    @property
    def has_tls(self) -> bool:
        """Whether it listens in TLS. Raises BadRequest, which `check` does first."""
        return tls_is_on(self.tls, self.host, self.allow_insecure, self.tls_files is not None)

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """Certificate and key of the operator's own. Raises BadRequest, which `check` does first."""
        return tls_files(self.tls_cert, self.tls_key)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether tokens are asked for even when there is none."""
        return self.require_api_token or not is_loopback(self.host)

    @property
    def replace_mode(self) -> Replace:
        """What is done about bad machines. Raises ValueError; `check` comes first."""
        return Replace(self.replacing)

    @property
    def models_root(self) -> Path:
        """Where servables lie."""
        root = self.servable_models_root
        return Path(root).expanduser() if root else self.data_dir / "servable_models"

    @property
    def store_url(self) -> str:
        """The database that is used."""
        return self.database_url or f"sqlite:///{self.data_dir / 'leader.db'}"

    @property
    def serve_defaults(self) -> ServeDefaults:
        """What the planner is told."""
        batch_max = None if self.batch_max == BY_CARDS else self.batch_max
        return ServeDefaults(self.context_tokens, self.typical_tokens, self.in_flight, self.serve_dtype, batch_max)

    @property
    def weights(self) -> Mapping[str, float]:
        """Share by caller. Raises BadRequest, which `check` does first."""
        return _weights_of(self.caller_weights)

    @property
    def transport(self) -> Transport:
        """The transport of a load that names none."""
        return Transport(self.pipeline_transport)


def check(config: LeaderConfig) -> LeaderConfig:
    """The same configuration when it makes sense. Raises BadRequest that names the variable."""
    check_bind_host(config.host, config.allow_insecure, config.has_tls)
    if 0 < len(config.relay_secret) < SECRET_MIN:
        raise BadRequest(f"SWARM_RELAY_SECRET needs {SECRET_MIN} characters or more", field="SWARM_RELAY_SECRET")
    check_metrics_listen(config.metrics_listen, config.allow_insecure)
    _weights_of(config.caller_weights)
    read_networks(config.mesh_networks)
    _check_watching(config)
    if config.pipeline_transport not in set(Transport):
        raise BadRequest(
            f"SWARM_PIPELINE_TRANSPORT={config.pipeline_transport!r} is none of {', '.join(Transport)}",
            field="SWARM_PIPELINE_TRANSPORT",
        )
    if config.covers not in COVER_MODES:
        raise BadRequest(f"SWARM_COVERS={config.covers!r} is none of {', '.join(COVER_MODES)}", field="SWARM_COVERS")
    if config.lease_s <= config.heartbeat_s or config.heartbeat_s <= 0:
        raise BadRequest(
            f"SWARM_LEASE_S={config.lease_s:g} must be longer than SWARM_HEARTBEAT_S={config.heartbeat_s:g}, or every "
            "fellow is lost between two reports",
            field="SWARM_LEASE_S",
        )
    if not BY_CARDS <= config.batch_max <= BATCH_LIMIT:
        raise BadRequest(
            f"SWARM_SERVE_MAX_BATCH={config.batch_max} must be in 1..{BATCH_LIMIT}, 0 for no cap, or -1 to go by cards",
            field="SWARM_SERVE_MAX_BATCH",
        )
    for name in ("relay_memory_mb", "queue_max", "event_queue_max", "context_tokens", "typical_tokens"):
        if getattr(config, name) < 1:
            variable = LeaderConfig.__dataclass_fields__[name].metadata["variable"]
            raise BadRequest(f"{variable}={getattr(config, name)} must be at least 1", field=variable)
    return config


def _check_watching(config: LeaderConfig) -> None:
    """What is done about machines that do badly, and who hears of it."""
    if config.replacing not in set(Replace):
        raise BadRequest(f"SWARM_REPLACE={config.replacing!r} is none of {', '.join(Replace)}", field="SWARM_REPLACE")
    if config.alert_webhook:
        Webhook(config.alert_webhook, config.alert_secret, lambda: 0.0)
    if config.alert_smtp_url or config.alert_to:
        Email(config.alert_smtp_url, config.alert_to)
    if config.logs_max_mb < 0:
        raise BadRequest(f"SWARM_LOGS_MAX_MB={config.logs_max_mb} must be 0 or more", field="SWARM_LOGS_MAX_MB")


@cache
def _weights_of(text: str) -> Mapping[str, float]:
    """Read "name=3,other=0.5". Raises BadRequest that names the variable and the entry."""
    weights: dict[str, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        caller, equals, number = entry.partition("=")
        try:
            weight = float(number) if equals else math.nan
        except ValueError:
            weight = math.nan
        least, most = WEIGHTS
        if not is_caller(caller):
            wrong = f"a caller has {CALLER_FORM}"
        elif not least <= weight <= most:
            wrong = f"write NAME=WEIGHT with a weight of {least:g} to {most:g}"
        elif caller in weights:
            wrong = f"{caller} is named twice"
        else:
            weights[caller] = weight
            continue
        raise BadRequest(f"SWARM_CALLER_WEIGHTS: {entry!r}: {wrong}", field="SWARM_CALLER_WEIGHTS", entry=entry)
    return weights
