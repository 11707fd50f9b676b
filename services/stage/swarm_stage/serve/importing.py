"""Imports what a slice is built with, once: when a stage loads, or ahead of that in a spare process. Builds nothing."""

import contextlib
import gc
import os
import threading

from swarm_stage.hidden_packages import hidden

SPARE_NICENESS = 5  # a quarter of a processor that a stage computes on; at 19 an import beside busy ones takes a minute


def import_slice_code() -> None:
    """Import torch, transformers and all that builds a slice. Some seconds the first time, nothing afterwards."""
    # Importing torch and transformers makes 370,000 objects that stay. Looking through them for garbage while they
    # are made takes 0.6 s of 4.7 s of CPU, and 0.25 s each later time: they are left out for good.
    gc.disable()
    try:
        # transformers would import torchao, where it is installed, for what is never used here: another 0.35 s.
        with hidden("torchao"):
            import swarm_stage.serve.build
            import swarm_stage.serve.torch_compute  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def import_ahead() -> None:
    """Import everything a load would import, and give way to whoever computes meanwhile.

    On a thread of its own: a process may lower its priority and never raise it again, a thread keeps that to itself.
    An import that fails is left to the load to fail with, which has somebody to tell.
    """
    thread = threading.Thread(target=_import_all, name="import-ahead")
    thread.start()
    thread.join()


def _import_all() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SPARE_NICENESS)
    with contextlib.suppress(Exception):
        import_slice_code()
        import swarm_stage.text.codec  # noqa: F401 - stage 0 reads a tokenizer
