"""Numbers every channel and server agrees on."""

# A half-open link is noticed after at most both together, which is less than a lease (9 s). An answer may be late by
# what queues on a full home line, hence the longer half. A home router forgets an idle mapping after minutes.
KEEPALIVE_MS = 3_500
KEEPALIVE_TIMEOUT_MS = 4_500
MESSAGE_BYTES_MAX = 4 * 2**20  # control messages; bulk data is chunked below it
FRAME_BYTES_MAX = 64 * 2**20  # a 1,024-token prompt piece of an 8,192-wide float32 model is 32 MiB

# A status travels twice in the trailers (percent-encoded words, then details): grpc's 8 KiB would lose long ones.
METADATA_BYTES_MAX = 64 * 2**10

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # gRPC waits 60 s for a ping's answer without it
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
)
SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),  # two processes on one port would each get half the calls; the second must fail
)


def message_options(bytes_max: int) -> tuple[tuple[str, int], ...]:
    """Options that allow messages up to this size, in bytes, both ways."""
    return (("grpc.max_receive_message_length", bytes_max), ("grpc.max_send_message_length", bytes_max))
