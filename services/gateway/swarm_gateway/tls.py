"""HTTPS of the gateway's listener: the operator's own certificate, read again when its files change. Makes none."""

import asyncio
import ssl
from pathlib import Path

import structlog
from aiohttp import web
from swarm_core.errors import BadRequest

log = structlog.get_logger()
LOOK_S = 10.0  # how often the files are looked at
HANDSHAKE_TIMEOUT_S = 10.0
_BACKLOG = 128


class ListenerCertificate:
    """A certificate chain and its key, PEM files. Raises BadRequest when they cannot be used.

    context: for connections that begin from now on; it stays the same when the files are read again.
    """

    def __init__(self, certificate_path: str, key_path: str) -> None:
        self._paths = (certificate_path, key_path)
        self._seen = self._stamp()
        self.context = self._load(None)

    async def watch(self) -> None:
        """Look at the files for ever. What cannot be used is told and changes nothing."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> bool:
        """Read the files if they changed. Returns whether they were taken."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._load(None)  # a pair that does not fit must not half replace the one in use
            self._load(self.context)
        except BadRequest as error:
            log.error("certificate not taken", why=error.message)
            return False
        log.info("certificate taken", path=self._paths[0])
        return True

    def _load(self, context: ssl.SSLContext | None) -> ssl.SSLContext:
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
        certificate_path, key_path = self._paths
        try:
            # A key with a passphrase would ask for it on a terminal that nobody watches.
            context.load_cert_chain(certificate_path, key_path, password="")
        except (OSError, ValueError) as error:  # SSLError is an OSError
            words = f"cannot use SWARM_GATEWAY_TLS_CERT={certificate_path} with SWARM_GATEWAY_TLS_KEY={key_path}"
            raise BadRequest(f"{words}: {error}", field="SWARM_GATEWAY_TLS_CERT") from None
        return context

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp_of(path) for path in self._paths)


class GatewaySite(web.TCPSite):
    """Where the gateway listens; a client has HANDSHAKE_TIMEOUT_S to begin TLS."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, certificate: ListenerCertificate | None) -> None:
        super().__init__(runner, host, port, ssl_context=certificate.context if certificate else None)

    async def start(self) -> None:
        """Bind. Raises OSError."""
        await web.BaseSite.start(self)
        is_tls = self._ssl_context is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if is_tls else None,
            backlog=_BACKLOG,
        )


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
