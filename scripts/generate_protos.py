"""Generates libs/silentswarm from protos/. `--check` compares byte for byte instead of writing."""

import argparse
import filecmp
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from google.api import annotations_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
GENERATED = ROOT / "libs"
HEADER = '"""Generated from protos/ by scripts/generate_protos.py; never edited."""\n'


def generate(out: Path) -> None:
    """Write every module of every proto below `out`."""
    protos = sorted(PROTOS.rglob("*.proto"))
    googleapis = Path(annotations_pb2.__file__).parents[2]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    command = ["protoc", f"-I{PROTOS}", f"-I{googleapis}", f"-I{well_known}"]
    command += [f"--{plugin}_out={out}" for plugin in ("python", "pyi", "grpc_python")]
    if protoc.main([*command, *(str(proto) for proto in protos)]) != 0:
        sys.exit("protoc failed")
    for module in out.rglob("*_pb2_grpc.py"):
        proto = PROTOS / module.relative_to(out).parent / module.name.replace("_pb2_grpc.py", ".proto")
        if "\nservice " not in proto.read_text():
            module.unlink()
    package = out / "silentswarm"
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (folder / "__init__.py").write_text(HEADER)


def differences(left: Path, right: Path) -> list[str]:
    """Files that differ or stand on one side only."""
    names = {path.relative_to(base) for base in (left, right) for path in base.rglob("*.py*") if path.suffix != ".pyc"}
    pairs = ((name, left / name, right / name) for name in sorted(names))
    return [str(name) for name, a, b in pairs if not (a.exists() and b.exists() and filecmp.cmp(a, b, shallow=False))]


def main() -> None:
    """Write the generated code, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed; exit 1 on a difference")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        generate(out)
        if check:
            stale = differences(out / "silentswarm", GENERATED / "silentswarm")
            sys.exit(
                f"generated code is not of these protos: {', '.join(stale)}; run {Path(__file__).name}" if stale else 0
            )
        shutil.rmtree(GENERATED / "silentswarm", ignore_errors=True)
        shutil.copytree(out / "silentswarm", GENERATED / "silentswarm")


if __name__ == "__main__":
    main()
