"""Descriptor images of the protos, of the working tree or of a commit, and buf's verdict on them."""

import subprocess
import sys
from pathlib import Path

import grpc_tools
from google.api import annotations_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
BUF = Path(sys.executable).with_name("buf")
BUF_S = 60


def build_image(protos: Path, image: Path) -> Path:
    """Compile every proto below `protos` into one image with imports and comments."""
    googleapis = Path(annotations_pb2.__file__).parents[2]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    command = ["protoc", f"-I{protos}", f"-I{googleapis}", f"-I{well_known}"]
    command += ["--include_imports", "--include_source_info", f"--descriptor_set_out={image}"]
    code = protoc.main([*command, *(str(proto) for proto in sorted(protos.rglob("*.proto")))])
    assert code == 0, f"protoc cannot compile {protos}"
    return image


def protos_of_commit(commit: str, folder: Path) -> Path | None:
    """protos/ as it was at a commit, written below `folder`; None when the commit or its protos do not exist."""
    listed = _git("ls-tree", "-r", "--name-only", commit, "protos/")
    names = [name for name in listed.stdout.decode().splitlines() if name.endswith(".proto")]
    if listed.returncode != 0 or not names:
        return None
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_git("show", f"{commit}:{name}").stdout)
    return folder / "protos"


def commit_before() -> str:
    """What the protos of the working tree are compared with: HEAD while they differ from it, else its parent."""
    changed = _git("status", "--porcelain", "--", "protos/").stdout.strip()
    return "HEAD" if changed else "HEAD~1"


def run_buf(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and all words of buf, with our rules."""
    command = [BUF, *arguments, "--config", PROTOS / "buf.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUF_S, cwd=PROTOS)
    return ended.returncode, ended.stdout + ended.stderr


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, timeout=BUF_S)
