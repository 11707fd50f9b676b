"""Certificate signing requests of strangers: bounded, checked, and only their key is used. Signs nothing."""

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes
from swarm_core.errors import BadRequest

REQUEST_BYTES_MAX = 16 * 1024  # with an RSA key of 4,096 bits one takes 2 KiB
FIELD = "certificate_request"


def read_request(request: bytes) -> CertificateIssuerPublicKeyTypes:
    """The key that a PEM or DER request is for, proved by its signature. Raises BadRequest."""
    if len(request) > REQUEST_BYTES_MAX:
        raise BadRequest(f"a certificate request has at most {REQUEST_BYTES_MAX} bytes", field=FIELD)
    load = x509.load_pem_x509_csr if request.lstrip().startswith(b"-----") else x509.load_der_x509_csr
    try:
        asked = load(request)
        is_signed = asked.is_signature_valid
        key = asked.public_key()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        raise BadRequest("the certificate request cannot be read", field=FIELD) from None
    if not is_signed:
        raise BadRequest("the certificate request is not signed by its own key", field=FIELD)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
        return key
    if isinstance(key, rsa.RSAPublicKey) and 2048 <= key.key_size <= 4096:
        return key
    raise BadRequest("the key of a certificate request must be P-256, P-384, or RSA of 2048 to 4096 bits", field=FIELD)
