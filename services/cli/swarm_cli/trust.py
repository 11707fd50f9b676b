"""`swarm trust`: the roots of a swarm, and certificates for its listeners. Keys are made here and stay here."""

import os
from pathlib import Path
from typing import Annotated

import typer
from silentswarm.leader.v1 import trust_pb2
from swarm_core.errors import BadRequest, ModelNotFound

from swarm_cli.context import CommandContext, JsonOption, LeaderOption
from swarm_cli.terminal import err, out, print_json

app = typer.Typer(help="Show a swarm's roots; issue certificates for listeners.", no_args_is_help=True)
CERTIFICATE_NAME, KEY_NAME = "cert.pem", "key.pem"
NameOption = Annotated[
    list[str], typer.Option("--name", metavar="HOST", help="A DNS name or address clients reach it by; repeatable.")
]


class NoRoots(ModelNotFound):
    """The leader has no certificates to lead to."""


@app.command("roots")
def show_roots(
    ctx: typer.Context,
    to_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write them there.")] = None,
    leader: LeaderOption = None,
    json: JsonOption = False,
) -> None:
    """Print the roots as PEM. Their SHA-256, which is what a pin names, goes to stderr."""
    context: CommandContext = ctx.obj
    answer = context.run(leader, lambda to: to.ask(to.trust.GetRoots, trust_pb2.GetRootsRequest()))
    if not answer.roots:
        raise NoRoots("this leader speaks no TLS and has no roots; start it with SWARM_TLS=1")
    if json or context.as_json:
        print_json({"sha256": answer.sha256, "roots": answer.roots.decode()})
        return
    if to_file is not None:
        to_file.write_bytes(answer.roots)
    else:
        out().print(answer.roots.decode(), markup=False, highlight=False, end="")
    err().print(f"SWARM_LEADER_CA=sha256:{answer.sha256}", markup=False, highlight=False, soft_wrap=True)


@app.command("issue")
def issue_certificate(
    ctx: typer.Context,
    names: NameOption,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help=f"Gets {CERTIFICATE_NAME} and {KEY_NAME}.")],
    leader: LeaderOption = None,
) -> None:
    """Make a key and have it certified. It is for a gateway, a relay of its own, or whatever else listens."""
    context: CommandContext = ctx.obj
    key_file, certificate_file = folder / KEY_NAME, folder / CERTIFICATE_NAME
    if key_file.exists():
        raise BadRequest(f"{key_file} exists; move it away, or give another --out", field="out")
    key, request = make_request(names)
    asked = trust_pb2.IssueCertificateRequest(certificate_request=request, names=names)
    answer = context.run(leader, lambda to: to.ask(to.trust.IssueCertificate, asked))
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(key)
    certificate_file.write_bytes(answer.certificate)
    out().print(f"{certificate_file}\n{key_file}", markup=False, highlight=False, soft_wrap=True)
    err().print("a gateway takes them as SWARM_GATEWAY_TLS_CERT and SWARM_GATEWAY_TLS_KEY", markup=False)
    err().print("they hold for a year; run this again, with another --out, before it ends", markup=False)


def make_request(names: list[str]) -> tuple[bytes, bytes]:
    """A new P-256 key, PEM, and a request for it, PEM. Raises BadRequest for an empty name."""
    if not all(names):
        raise BadRequest("--name is empty", field="names")
    # Imported here: no other command needs it, and it takes 0.1 s.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    form, open_key = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    encoding = serialization.Encoding.PEM
    return key.private_bytes(encoding, form, open_key), request.public_bytes(encoding)
