"""Becomes a child that the kernel ends with its supervisor. Standard library only; replaced by the real program.

python -m swarm_cli.up.child SUPERVISOR_PID PROGRAM [ARGUMENT ...]
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; survives exec


def end_with(supervisor_pid: int) -> None:
    """Ask the kernel for SIGKILL when the supervisor dies, however it dies. Elsewhere than on Linux: nothing."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != supervisor_pid:  # it died before the request was made
        sys.exit(1)


def main() -> None:
    """Bind the life, then become the program."""
    end_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
