"""What this stage proves itself with on encrypted links: files its fellow keeps. Makes none."""

from pathlib import Path

import grpc
from swarm_core.errors import BadRequest
from swarm_rpc.tls import FileIdentity, Trust, read_roots, server_credentials

CERTIFICATE_NAME, KEY_NAME, ROOTS_NAME = "node.pem", "node.key", "roots.pem"  # LoadRequest.tls_dir


class Certificates:
    """The machine's certificate, key and roots. A renewed certificate is used from the next link on.

    Raises BadRequest when the folder does not hold them.
    """

    def __init__(self, folder: Path) -> None:
        self._identity = FileIdentity(folder / CERTIFICATE_NAME, folder / KEY_NAME, "tls_dir")
        self._roots = read_roots(folder / ROOTS_NAME, "tls_dir")

    def trust(self, name: str) -> Trust:
        """For dialling the stage with this name on its certificate."""
        return Trust(self._roots, name, self._identity())

    def credentials(self) -> grpc.ServerCredentials:
        """For the listener: whoever dials must show a certificate of the same roots."""
        return server_credentials(self._identity, client_roots=self._roots)


def open_certificates(tls_dir: str) -> Certificates | None:
    """Those of LoadRequest.tls_dir; None when it names none. Raises BadRequest."""
    if not tls_dir:
        return None
    folder = Path(tls_dir)
    if not folder.is_absolute():
        raise BadRequest("tls_dir must be an absolute path", field="tls_dir")
    return Certificates(folder)


def names_of(context: grpc.aio.ServicerContext) -> list[str]:
    """The names on the certificate of whoever calls; none without TLS."""
    return [name.decode() for name in context.auth_context().get("x509_subject_alternative_name", ())]
