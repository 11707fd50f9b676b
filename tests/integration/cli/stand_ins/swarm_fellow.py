"""Runs in the place of a fellow under `swarm up`: it only lives.

SCRIPTED_BROKEN: a path; while a file is there it ends at once.
"""

import os
import signal
from pathlib import Path

if __name__ == "__main__":
    if Path(os.environ.get("SCRIPTED_BROKEN", "/nonexistent")).exists():
        raise SystemExit("the disk is gone")
    signal.pause()
