"""Client channels: keepalive on, limits set, proxies of the environment ignored for our own links."""

import grpc

from swarm_rpc.limits import CHANNEL_OPTIONS, MESSAGE_BYTES_MAX, message_options
from swarm_rpc.tls import Trust


def dial(address: str, message_bytes_max: int = MESSAGE_BYTES_MAX, trust: Trust | None = None) -> grpc.aio.Channel:
    """A channel to "host:port" or "unix:/path". Connects on first use.

    message_bytes_max: largest message either way, in bytes. trust: what the server must prove; None is plaintext.
    """
    options = (
        *CHANNEL_OPTIONS,
        *message_options(message_bytes_max),
        ("grpc.enable_http_proxy", 0),
        # Reconnect soon after a peer restarts; grpc's default backs off to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    )
    if trust is None:
        return grpc.aio.insecure_channel(address, options=options)
    named = (("grpc.ssl_target_name_override", trust.name),) if trust.name else ()
    return grpc.aio.secure_channel(address, trust.channel_credentials(), options=(*options, *named))
