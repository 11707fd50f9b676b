"""A stage never outlives its fellow, also when that is killed: the kernel tells us, and so does the closed pipe."""

import ctypes
import os
import signal
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, and end it when stdin (the parent's pipe) closes.

    Both, because the signal follows the thread that forked, and the pipe needs this process to run.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_at_end_of_input, name="parent-watch", daemon=True).start()


def _exit_at_end_of_input() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    os._exit(0)
