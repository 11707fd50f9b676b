"""`python -m swarm_stage.convert SOURCE.gguf OUT_DIR`: one file, within limits of memory, time, disk and net."""

import os

# Before the libraries are imported, which read them once: whatever a file names, nothing is fetched for it.
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import argparse
import sys
from pathlib import Path

from swarm_core.process_limits import limit_cpu, limit_file, limit_memory

_GIB = 2**30


def limit(source: Path) -> None:
    """Take what a file of its size can need; a hostile one then ends this process, never the leader or its machine.

    Memory: the libraries and a vocabulary, and three copies in float32 of a tensor of 4 bits that is the whole file.
    Disk: the largest output, float32 from one and a half bits. Time: twenty times what was measured.
    """
    size_bytes = source.stat().st_size if source.is_file() else 0
    limit_memory(6 * _GIB + 24 * size_bytes)
    limit_cpu(600 + size_bytes // 500_000)
    limit_file(_GIB + 32 * size_bytes)


def main() -> int:
    """Exit code: 0 converted, 1 the disk refused, 2 the file cannot be served; the reason is one line on stderr."""
    parser = argparse.ArgumentParser(prog="swarm_stage.convert", description="Convert a GGUF file to safetensors.")
    parser.add_argument("source", type=Path, help="the .gguf file")
    parser.add_argument("folder", type=Path, help="where to write; created when it does not exist")
    arguments = parser.parse_args()
    limit(arguments.source)
    from swarm_stage.convert.gguf import run  # after the limits, as it takes memory itself

    return run(arguments.source, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
