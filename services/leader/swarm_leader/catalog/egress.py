"""Holds a whole process to where it may connect (swarm_core.egress), whatever its libraries do. Judges nothing."""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from swarm_core.egress import Door


def guard_sockets(door: Door, refuse: Callable[[str], NoReturn]) -> None:
    """From now on and for good, call `refuse` before this process connects anywhere the door is closed for."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            why = door.why_address_refused(arguments[1])
            if why:
                refuse(why)

    sys.addaudithook(look)
