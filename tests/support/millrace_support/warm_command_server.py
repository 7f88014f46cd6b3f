"""The server behind `warm_commands`: `warm_command_server.py DESCRIPTOR`, the number of its listening socket.

It ends with its standard input.

A connection brings the three standard streams as descriptors beside the size of the request (4 bytes, big-endian), then
the request, with a zero byte between its parts: working directory, number of arguments, arguments, variables of the
environment. What follows are requests for the end of the command, a byte each. The answer is the exit status as text.
"""

import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import pytest
import typer
from typer.testing import CliRunner

import millrace_ops.cli
from millrace_ops.cli.app import app
from millrace_ops.cli.main import main
from millrace_support.client_codecs import make_client_codecs

IMPORTED_BY_MOST = (
    "encodings.idna",
    "httpcore",
    "httpx",
    "kazoo.client",
    "millrace.client.consumer",
    "millrace.security.client_config",
    "millrace.security.tls",
)
IMPORTED_BY_A_BROKER = ("millrace_broker.broker", "millrace_broker.admin.endpoint")
TABLES = ("duckdb", "pandas", "pyarrow.dataset", "pyspark.sql", "millrace_pipelines.warehouse.load.load")
IMPORTED_BY = {"broker": IMPORTED_BY_A_BROKER, "dead-letters": TABLES, "warehouse": TABLES}
"""What the commands that begin with a word import, which the server does with the first of them."""


class Command(NamedTuple):
    """What a command is started with."""

    streams: list[int]
    arguments: list[str]
    directory: str
    environment: dict[str, str]


def serve(listener: socket.socket) -> None:
    """Forks for each connection, until stdin ends."""
    _import_what_commands_import()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with connection, suppress(EOFError):
            command = _received(connection)
            _import_modules(IMPORTED_BY.get(" ".join(command.arguments[1:2]), ()))
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(connection, command)
                os._exit(0)
            _close_streams(command)


def _import_what_commands_import() -> None:
    """Imports all commands and the messages that the client sends and reads, and makes the command line once.

    What Typer imports late, it imports as a command runs.
    """
    commands = [
        found.name for found in pkgutil.iter_modules(millrace_ops.cli.__path__, f"{millrace_ops.cli.__name__}.")
    ]
    _import_modules((*IMPORTED_BY_MOST, *commands))
    make_client_codecs()
    CliRunner().invoke(app, ["dump", os.devnull])
    made = typer.main.get_command(app)
    pytest.MonkeyPatch().setattr("typer.main.get_command", lambda _: made)


def _import_modules(names: Iterable[str]) -> None:
    """Imports what is not there yet, and keeps the garbage collector of children from looking at it."""
    if missing := [name for name in names if name not in sys.modules]:
        for name in missing:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()


def _received(connection: socket.socket) -> Command:
    """Returns what a connection asks for; raises EOFError where the program has ended before it said so."""
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        request = stream.read(int.from_bytes(size, "big"))
    if not size or len(request) < int.from_bytes(size, "big"):
        raise EOFError
    directory, count, *rest = (os.fsdecode(part) for part in request.split(b"\0"))
    arguments, variables = rest[: int(count)], rest[int(count) :]
    return Command(streams, arguments, directory, dict(one.split("=", 1) for one in variables))


def _answer(connection: socket.socket, command: Command) -> None:
    """Runs the command in a child, passes SIGTERM on, and sends its exit status."""
    if (child := os.fork()) == 0:
        connection.close()
        for number, stream in enumerate(command.streams):
            os.dup2(stream, number)
        _close_streams(command)
        os.chdir(command.directory)
        os.environ.clear()
        os.environ.update(command.environment)
        sys.argv = command.arguments
        os._exit(_run())
    _close_streams(command)
    status = _end_of(child, connection)
    with suppress(BrokenPipeError):  # the program was killed
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def _close_streams(command: Command) -> None:
    for stream in command.streams:
        os.close(stream)


def _end_of(child: int, connection: socket.socket) -> int:
    """Waits for a child's end, and passes SIGTERM on; a child whose program was killed goes on."""
    ended = os.pidfd_open(child)
    awaited: list[int] = [ended, connection.fileno()]
    while ended not in (readable := select.select(awaited, [], [])[0]):
        if readable and connection.recv(1):
            os.kill(child, signal.SIGTERM)
        else:
            awaited.remove(connection.fileno())
    return os.waitpid(child, 0)[1]


def _run() -> int:
    """Runs a command and returns its exit status; to finalize the interpreter would take longer than the command."""
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001  # as the interpreter does
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    return status


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
