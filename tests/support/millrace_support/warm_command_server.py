"""The server behind `warm_commands`: `warm_command_server.py DESCRIPTOR`, the number of its listening socket.

A connection brings the three standard streams as descriptors beside the size of the request (4 bytes, big-endian), then
the request in JSON: arguments, working directory, environment. The answer is the exit status as text.
"""

import gc
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress

from typer.testing import CliRunner

from millrace.client.connection import CLIENT_VERSIONS
from millrace.wire.cold import Direction, decoder
from millrace_ops.cli.app import app
from millrace_ops.cli.main import main


def serve(listener: socket.socket) -> None:
    """Forks for each connection, for ever."""
    _import_what_commands_import()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection)
            os._exit(0)
        connection.close()


def _import_what_commands_import() -> None:
    """Runs a command, since most are imported by running, and imports the messages that the client sends and reads."""
    CliRunner().invoke(app, ["dump", os.devnull])
    for api_key, versions in CLIENT_VERSIONS.items():
        decoder(api_key, versions.maximum, Direction.RESPONSE)


def _answer(connection: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as received:
        arguments, directory, environment = json.loads(received.read(int.from_bytes(size, "big")))
    if (child := os.fork()) == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = arguments
        os._exit(_run())
    _, status = os.waitpid(child, 0)
    connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def _run() -> int:
    """Returns the exit status of a command, whose interpreter is not taken down: that would take longer than it ran."""
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
