"""What the server of runs is asked, a line for each connection, and its answer, `yes` or `no`.

    launch RUN       starts a worker that executes the run, unless it has one    yes
    interrupt RUN    interrupts the worker of the run                            whether there is one
    find RUN                                                                     whether there is one

A run is named by its id alone: what it executes is in the instance.
"""

from __future__ import annotations

import socket
from enum import StrEnum

from millrace.addresses import LOOPBACK

TIMEOUT_S = 90.0  # longer than the server waits for the line of another connection
MAX_LINE_BYTES = 200
YES, NO = b"yes\n", b"no\n"


class Request(StrEnum):
    """What the server of runs is asked to do."""

    LAUNCH = "launch"
    INTERRUPT = "interrupt"
    FIND = "find"


def ask(port: int, request: Request, run_id: str) -> bool:
    """Asks the server on the port, and returns its answer.

    Raises OSError: ConnectionRefusedError where no server listens, ConnectionError where it ends before it answers,
    TimeoutError after TIMEOUT_S.
    """
    with socket.create_connection((LOOPBACK, port), TIMEOUT_S) as connection:
        connection.sendall(f"{request} {run_id}\n".encode())
        answer = read_line(connection)
    if answer not in (YES, NO):
        raise ConnectionError(f"the server of runs on port {port} ended before it answered")
    return answer == YES


def read_line(connection: socket.socket) -> bytes:
    """Returns what the other side sends until a line ends, or until it closes the connection; raises OSError."""
    with connection.makefile("rb") as stream:
        return stream.readline(MAX_LINE_BYTES)


def parse_request(line: bytes) -> tuple[Request, str]:
    """Returns the request of a line and the id of its run; raises ValueError where the line is no request."""
    request, run_id = line.decode("ascii").split()
    return Request(request), run_id
