"""What `swarm up` is asked for. Plain facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swarm_cli.load_options import QuantizationChoice
from swarm_cli.serving import TransportChoice

HOST = "127.0.0.1"  # one machine; nothing here listens beyond it


@dataclass(frozen=True)
class UpOptions:
    """Ports 0: a free one is chosen. model_dir None: inside data_dir. model None: the one that comes along.
    quantization None: the model's own default.

    metrics_ports: process -> where it answers Prometheus; a process without one does not. The gateway does so on its
    HTTP port.
    """

    fellows: int
    stages: int
    model: str | None
    transport: TransportChoice
    http_port: int
    grpc_port: int
    data_dir: Path
    model_dir: Path | None
    no_model: bool
    ready_file: Path | None
    once: str | None
    chat: bool
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    quantization: QuantizationChoice | None = None
    restart: bool = True  # what dies while the swarm serves is started again


@dataclass(frozen=True)
class Machine:
    """What is shared out between the fellows. memory_free_bytes: available to new processes now."""

    cpu_count: int
    memory_free_bytes: int
