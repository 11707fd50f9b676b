"""Tells systemd how this service is: READY, WATCHDOG, STOPPING. A few datagrams; silent where there is no systemd."""

import contextlib
import socket
from collections.abc import Mapping


class ServiceNotifier:
    """Speaks sd_notify(3) to the socket systemd named; does nothing without one.

    environ: where NOTIFY_SOCKET and WATCHDOG_USEC are looked up.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name  # "@" spells the abstract namespace
        watchdog_us = environ.get("WATCHDOG_USEC", "")
        self._watchdog_s = int(watchdog_us) / 1e6 if watchdog_us.isdigit() else 0.0

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to say alive(): half of what systemd allows; None when it does not watch."""
        return self._watchdog_s / 2 if self._address and self._watchdog_s else None

    def ready(self) -> None:
        """Start-up is over."""
        self._send("READY=1")

    def alive(self) -> None:
        """The event loop still turns."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """A stop has begun."""
        self._send("STOPPING=1")

    def status(self, words: str) -> None:
        """One line for `systemctl status`."""
        self._send("STATUS=" + words.replace("\n", " "))

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
            datagram.setblocking(False)  # a full socket must never stop the loop that it vouches for
            datagram.sendto(message.encode(), self._address)
