"""The gateway's settings: every SWARM_* variable it reads, with its meaning. Reads no environment itself."""

from dataclasses import dataclass

from swarm_core.config import env
from swarm_core.errors import BadRequest

LEAST_S = 0.01  # a time of nothing, or of next to nothing, would only write comments or give up


@dataclass(frozen=True)
class GatewayConfig:
    """One gateway. Times in seconds."""

    leader: str = env("SWARM_LEADER", "127.0.0.1:50551", "the leader's gRPC address, HOST:PORT")
    leader_ca: str = env(
        "SWARM_LEADER_CA",
        "",
        "how the leader proves itself: a PEM file of roots, sha256:HEX of its root, or system; empty is plaintext, to "
        "this machine only",
    )
    host: str = env("SWARM_GATEWAY_HOST", "127.0.0.1", "address the gateway's HTTP listens on")
    port: int = env("SWARM_HTTP_PORT", 8080, "port the gateway's HTTP listens on; 0 takes a free one")
    max_body_mb: int = env("SWARM_MAX_BODY_MB", 16, "largest request body, MiB; a larger one gets 413")
    request_timeout_s: float = env("SWARM_REQUEST_TIMEOUT_S", 600.0, "longest a chat may take, from request to end, s")
    resume_s: float = env(
        "SWARM_GATEWAY_RESUME_S", 60.0, "how long a reply waits for a leader that was lost in it, s; 0 ends it at once"
    )
    api_timeout_s: float = env("SWARM_API_TIMEOUT_S", 30.0, "longest the leader may take over a JSON route, s")
    stream_timeout_s: float = env("SWARM_STREAM_TIMEOUT_S", 7200.0, "longest a streamed JSON route may last, s")
    keep_alive_s: float = env("SWARM_KEEP_ALIVE_S", 10.0, "silence on a stream after which a comment is sent, s")
    write_timeout_s: float = env("SWARM_WRITE_TIMEOUT_S", 30.0, "how long a reader may take none of its stream, s")
    read_timeout_s: float = env("SWARM_READ_TIMEOUT_S", 60.0, "how long a client may take to send its body, s")
    caller_secret: str = env(
        "SWARM_CALLER_SECRET",
        "",
        "mixed into the fingerprints by which callers share a ring, the same on every gateway; empty: fellows could "
        "guess a caller's address from its fingerprint",
    )
    requests_max: int = env("SWARM_GATEWAY_REQUESTS_MAX", 512, "requests in work at once; more get 429")
    connections_max: int = env(
        "SWARM_GATEWAY_CONNECTIONS_MAX", 1000, "connections at once; idle ones make room for new ones, then 503"
    )
    uploads_max: int = env(
        "SWARM_GATEWAY_UPLOADS_MAX", 64, "request bodies that may come slowly at once, a fourth of them of one address"
    )
    header_timeout_s: float = env("SWARM_HEADER_TIMEOUT_S", 15.0, "how long a client may take to send its headers, s")
    allowed_hosts: str = env(
        "SWARM_ALLOWED_HOSTS",
        "",
        "names by which clients reach the gateway, separated by commas, besides localhost and where it listens; * is "
        "any, which lets web pages of strangers reach it through a browser on its network",
    )
    cors_origins: str = env(
        "SWARM_CORS_ORIGINS",
        "",
        "origins of web pages that may use the gateway, https://chat.example, separated by commas; * is any",
    )
    tls_cert: str = env(
        "SWARM_GATEWAY_TLS_CERT", "", "file with the gateway's certificate chain, PEM; read again when it changes"
    )
    tls_key: str = env("SWARM_GATEWAY_TLS_KEY", "", "file with the key of that certificate, PEM")
    allow_insecure: bool = env("SWARM_ALLOW_INSECURE", False, "1 allows listening beyond this machine without tokens")
    log_level: str = env("SWARM_LOG_LEVEL", "INFO", "least severe log line written: DEBUG, INFO, WARNING, ERROR")
    log_json: bool = env("SWARM_LOG_JSON", False, "1 writes logs as JSON lines")

    @property
    def body_bytes_max(self) -> int:
        """Largest request body, in bytes."""
        return self.max_body_mb * 2**20


_LEAST = {
    "request_timeout_s": LEAST_S,
    "resume_s": 0,
    "api_timeout_s": LEAST_S,
    "stream_timeout_s": LEAST_S,
    "keep_alive_s": LEAST_S,
    "write_timeout_s": LEAST_S,
    "read_timeout_s": LEAST_S,
    "header_timeout_s": LEAST_S,
    "requests_max": 1,
    "connections_max": 1,
    "uploads_max": 1,
    "max_body_mb": 1,
}


def check(config: GatewayConfig) -> GatewayConfig:
    """The same configuration when it makes sense. Raises BadRequest that names the variable."""
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if not value >= least:  # also what is no number
            variable = GatewayConfig.__dataclass_fields__[name].metadata["variable"]
            raise BadRequest(f"{variable}={value:g} must be at least {least:g}", field=variable)
    if bool(config.tls_cert) != bool(config.tls_key):
        words = "SWARM_GATEWAY_TLS_CERT and SWARM_GATEWAY_TLS_KEY are set both or neither"
        raise BadRequest(words, field="SWARM_GATEWAY_TLS_CERT")
    return config
