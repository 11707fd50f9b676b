"""This machine's key and the certificates its leader gives it, in one folder that stages read. Trusts nobody."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from swarm_core.clock import Clock
from swarm_core.errors import DiskFull
from swarm_core.private_file import write_private
from swarm_rpc.tls import ORGANIZATION

from swarm_fellow.domain.state_folder import TLS_FOLDER

CERTIFICATE_NAME, KEY_NAME, ROOTS_NAME = "node.pem", "node.key", "roots.pem"  # as stage.v1.LoadRequest.tls_dir says
RENEW_LEAST_S = 3600.0  # however short-lived certificates are, a new one is asked for at most this often


class NodeCertificates:
    """The key is made at first use and stays; the certificate is new at every registration.

    Raises DiskFull when the folder cannot be written.
    """

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._folder = state_dir.absolute() / TLS_FOLDER
        self._clock = clock
        self._is_certified = False
        self._roots = b""
        self.renew_after_s: float | None = None  # of the newest certificate, when a third of its time is left

    @property
    def tls_dir(self) -> str:
        """Folder for stages; empty where the leader of this registration gives no certificates."""
        return str(self._folder) if self._is_certified else ""

    @property
    def roots(self) -> bytes:
        """What the certificates of this swarm lead to, PEM; empty as above."""
        return self._roots

    def request(self) -> bytes:
        """A certificate signing request for the key, DER."""
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)])
        signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(self._key(), hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.DER)

    def keep(self, certificate: bytes, roots: bytes) -> None:
        """What a registration brought, PEM; both empty: links are plaintext from now on. Running links stay."""
        self._is_certified = bool(certificate and roots)
        self._roots = roots
        self.renew_after_s = None
        if self._is_certified:
            write_private(self._folder / ROOTS_NAME, roots.decode("ascii"))
            write_private(self._folder / CERTIFICATE_NAME, certificate.decode("ascii"))
            left_s = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp() - self._clock.unix_s()
            self.renew_after_s = max(left_s * 2 / 3, RENEW_LEAST_S)

    def _key(self) -> ec.EllipticCurvePrivateKey:
        file = self._folder / KEY_NAME
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._folder.chmod(0o700)
            key = serialization.load_pem_private_key(file.read_bytes(), password=None)
            if isinstance(key, ec.EllipticCurvePrivateKey):
                return key
        except (FileNotFoundError, ValueError, TypeError):
            pass  # none yet, or cut short by a full disk: the old one proves nothing that a new one does not
        except OSError as error:
            raise DiskFull(f"cannot use {self._folder}: {error.strerror}", path=self._folder) from error
        key = ec.generate_private_key(ec.SECP256R1())
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        write_private(file, key.private_bytes(encoding, form, serialization.NoEncryption()).decode("ascii"))
        return key
