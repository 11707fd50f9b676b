"""Ctrl-C while the commands wait for the leader. Decides nothing about what it ends."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def ended_by_ctrl_c(work: Coroutine[Any, Any, T]) -> T:
    """Do `work`, which Ctrl-C cancels. Raises KeyboardInterrupt once it has cleaned up.

    What asyncio.run does by itself misses a signal that comes between the last instruction and the moment in which the
    loop goes to sleep: the command waited on, and only a second Ctrl-C was heard. A loop's own handler wakes it up.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a job in the background
        return await work
    is_pressed = False

    def press() -> None:
        nonlocal is_pressed
        is_pressed = True
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        return await work
    except asyncio.CancelledError:
        if is_pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
