"""TCP ports of this machine: free ones, reserved for who asked, and whether one is free or listened on.

Free ports are below those that the system gives to outgoing connections. A server that is stopped for a while finds
its port free when it starts again, as the system gives it to no outgoing connection meanwhile. Nor can a client that
connects while no server listens be connected with itself, as happens within that range. The process that asked for a
port keeps a socket bound to it that does not listen: a server, which sets SO_REUSEADDR, can still listen there, and
nobody else who asks for a free port is given it, also while the server is down. Only Linux lets the two be bound at
once, so other systems reserve nothing.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections import deque
from pathlib import Path
from random import SystemRandom

from millrace.addresses import LOOPBACK, Address
from millrace.errors import SetupError

FIRST_PORT = 15_000
FIRST_OF_CONNECTIONS = 32_768  # Linux's default
RANGE_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
ATTEMPTS = 100
ANY = 0
RESERVED_PORTS = 64  # each holds a descriptor; of more, the oldest is let go
_reservations: deque[socket.socket] = deque()


def free_port(host: str = LOOPBACK) -> int:
    """Returns a free port, which it reserves for a server of this process; raises OSError where there is none.

    The port is chosen at random, so that two processes seldom try the same one.
    """
    end = _first_of_connections()
    chance = SystemRandom()  # a seed that a program sets would give every process the same ports
    wanted = [chance.randrange(FIRST_PORT, end) for _ in range(ATTEMPTS)] if end > FIRST_PORT else []
    for port in (*wanted, ANY):
        probe = socket.socket()
        try:
            probe.bind((host, port))
        except OSError:
            probe.close()
            continue
        found = int(probe.getsockname()[1])
        _reserve(probe)
        return found
    raise OSError(f"{host} has no free port")


def _reserve(bound: socket.socket) -> None:
    """Keeps a bound socket on Linux, where a server can still listen on its port; closes it on other systems."""
    if sys.platform != "linux":
        bound.close()
        return
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reservations.append(bound)
    while len(_reservations) > RESERVED_PORTS:
        _reservations.popleft().close()


def _first_of_connections() -> int:
    try:
        return int(RANGE_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST_OF_CONNECTIONS


CONNECT_TIMEOUT_S = 1.0


def require_free_port(host: str, port: int, option: str) -> None:
    """Raises SetupError unless the port can be listened on; the message names `option`, which sets another port."""
    try:
        try_to_listen(Address(host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"port {port} of {host} is in use; choose another with {option}") from error
        raise SetupError(f"can't listen on {Address(host, port)}: {error.strerror}; see {option}") from error


def is_free(host: str, port: int) -> bool:
    """Returns whether the port can be listened on."""
    try:
        try_to_listen(Address(host, port))
    except OSError:
        return False
    return True


def try_to_listen(address: Address) -> None:
    """Listens on an address for a moment; raises OSError where that is not possible."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.create_server(address, family=family):
        pass


def is_listening(host: str, port: int) -> bool:
    """Returns whether a server accepts connections at this host and port."""
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
