"""A process's figures for Prometheus, over HTTP in a thread of its own. Serves a registry; counts nothing."""

import socket
import threading
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from swarm_core.errors import BadRequest
from swarm_core.listen import is_loopback, join_host_port, split_host_port

VARIABLE = "SWARM_METRICS_LISTEN"
READ_TIMEOUT_S = 10.0  # Prometheus gives up a scrape after 10 s; a client that says nothing for as long holds no thread
SCRAPES_MAX = 8  # at once; one server and a person or two look


class MetricsListener:
    """Answers every GET with the registry's figures.

    listen: HOST:PORT; port 0 takes a free one. Only a process that has a registry of its own can have one, so that two
    in one test process do not share figures.
    """

    def __init__(self, listen: str, registry: CollectorRegistry) -> None:
        self._listen = listen
        self._registry = registry
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        assert self._server is not None
        return self._server.server_port

    @property
    def address(self) -> str:
        """HOST:PORT it listens on, once started."""
        return join_host_port(split_host_port(self._listen)[0], self.port)

    def start(self) -> None:
        """Listen. Raises BadRequest when the port cannot be had."""
        host, port = split_host_port(self._listen)
        try:
            family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            server = _Server(family, (host, port), _Handler)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadRequest(f"{VARIABLE}={self._listen}: cannot listen there ({why})", field=VARIABLE) from None
        server.set_app(make_wsgi_app(self._registry))
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; a scrape that runs is cut off when the process ends. Harmless when it was never started."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(READ_TIMEOUT_S)
        self._thread = None


def check_metrics_listen(listen: str, allow_insecure: bool) -> None:
    """Refuse what cannot be an address, and an address beyond this machine unless that is allowed. "" is off.

    Raises BadRequest that names the variable.
    """
    if not listen:
        return
    try:
        host, _ = split_host_port(listen)
    except BadRequest as error:
        raise BadRequest(f"{VARIABLE}: {error.message}", field=VARIABLE) from None
    if is_loopback(host) or allow_insecure:
        return
    raise BadRequest(
        f"{VARIABLE}: will not listen on {host}: figures are told to whoever asks, in plaintext. Listen on 127.0.0.1 "
        "and have them fetched on this machine or through a tunnel, or set SWARM_ALLOW_INSECURE=1 if the network is "
        "yours alone.",
        field=VARIABLE,
    )


class _Handler(WSGIRequestHandler):
    """Logs nothing, waits for nobody."""

    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no news."""


class _Server(ThreadingWSGIServer):
    """A thread for each of a few scrapes; more are hung up on."""

    def __init__(self, family: socket.AddressFamily, *args: Any) -> None:
        self.address_family = family
        self._places = threading.BoundedSemaphore(SCRAPES_MAX)
        super().__init__(*args)

    def server_bind(self) -> None:
        """Without asking for the host's full name, which may take seconds and is not used."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away while it was answered is no error of ours."""
