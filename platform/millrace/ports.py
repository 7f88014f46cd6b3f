"""Free ports for servers: below those that the system gives to outgoing connections.

A server that is stopped for a while finds its port free when it starts again, as the system gives it to no outgoing
connection meanwhile. Nor can a client that connects while no server listens be connected with itself, as happens
within that range.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

LOOPBACK = "127.0.0.1"
FIRST_PORT = 15_000
FIRST_OF_CONNECTIONS = 32_768  # Linux's default
RANGE_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
ATTEMPTS = 100
ANY = 0


def free_port(host: str = LOOPBACK) -> int:
    """Returns a free port, chosen at random, so that two processes seldom agree; OSError where there is none."""
    end = _first_of_connections()
    chance = SystemRandom()  # a seed that a program sets would give every process the same ports
    wanted = [chance.randrange(FIRST_PORT, end) for _ in range(ATTEMPTS)] if end > FIRST_PORT else []
    for port in (*wanted, ANY):
        with suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    raise OSError(f"{host} has no free port")


def _first_of_connections() -> int:
    try:
        return int(RANGE_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST_OF_CONNECTIONS
