"""What all servers of catalogs share."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress

START_TIMEOUT_S = 60.0


def await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    """Waits until a server listens; raises AssertionError where it ends, or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing answers at port {port}")
