"""Tells systemd that a service is ready, alive or stopping, by datagrams to a socket (sd_notify(3)).

    NOTIFY_SOCKET   where they go: a path, or @NAME for one without a file
    WATCHDOG_USEC   microseconds without a message after which the service is killed and started again
    WATCHDOG_PID    the process that this is for

Without NOTIFY_SOCKET nothing is sent. The variables are removed from the environment, so that no child process sends
messages in the service's name.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from typing import Self

logger = logging.getLogger(__name__)

NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
SEND_TIMEOUT_S = 1.0


class ServiceManager:
    """Sends the state of this process to its service manager (systemd's sd_notify protocol), if there is one.

    Attributes:
        watchdog_ms: Every how many milliseconds `alive` is to be called; None for never.
    """

    def __init__(self, address: str | None, watchdog_ms: int | None = None) -> None:
        self.watchdog_ms = watchdog_ms
        self._address = address

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str], pid: int) -> Self:
        """Returns the service manager by NOTIFY_SOCKET and WATCHDOG_*, and removes these from `environment`."""
        address = environment.pop(NOTIFY_SOCKET, None)
        limit_us, process = environment.pop(WATCHDOG_USEC, ""), environment.pop(WATCHDOG_PID, str(pid))
        is_watched = address is not None and limit_us.isdigit() and process == str(pid)
        return cls(address, max(int(limit_us) // 2_000, 1) if is_watched else None)  # half the limit, as it advises

    def ready(self, status: str) -> None:
        """Tells the service manager that the service is ready, and the status to show beside its name."""
        self._tell("READY=1", f"STATUS={status}")

    def alive(self) -> None:
        """Tells the service manager's watchdog that the service is working."""
        self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """Tells the service manager that the service is about to end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:  # no reason to stop serving
            logger.warning("%s=%s: %s can't be told: %s", NOTIFY_SOCKET, self._address, lines[0], error)
