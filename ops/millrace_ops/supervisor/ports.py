"""TCP ports of this machine: whether one is free, and whether a server listens on it."""

from __future__ import annotations

import errno
import socket

from millrace.addresses import Address
from millrace.errors import SetupError

CONNECT_TIMEOUT_S = 1.0


def require_free_port(host: str, port: int, option: str) -> None:
    """Raises SetupError, with the option that changes the port, unless the port can be listened on."""
    try:
        try_to_listen(Address(host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(f"port {port} of {host} is in use; choose another with {option}") from error
        raise SetupError(f"can't listen on {Address(host, port)}: {error.strerror}; see {option}") from error


def try_to_listen(address: Address) -> None:
    """Listens on an address for a moment; raises OSError where that can't be."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.create_server(address, family=family):
        pass


def is_listening(host: str, port: int) -> bool:
    """Returns whether a connection is accepted there."""
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
