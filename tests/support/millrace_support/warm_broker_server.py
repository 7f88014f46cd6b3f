"""The server behind `warm_brokers`: `warm_broker_server.py DESCRIPTOR`, the number of its listening socket.

It ends with its standard input.

A connection brings the standard streams of a broker as descriptors beside the size of the request (4 bytes,
big-endian), then the request in JSON: arguments, working directory, environment. Two lines come back: the broker's
process id, and its exit status once it has ended.
"""

import gc
import importlib
import json
import os
import selectors
import socket
import sys
import traceback
from contextlib import suppress

from millrace.wire.cold import warm
from millrace_broker.__main__ import main
from millrace_broker.handlers.registry import APIS, warm_up
from millrace_support.client_codecs import make_client_codecs

IMPORTED_BY_A_START = ("millrace_broker.broker", "millrace_broker.admin.endpoint", "encodings.idna")
LIFELINE = "exec >/dev/null 2>&1; read -r _; kill -9 0"  # as millrace.lifeline: the streams end with the broker


def serve(listener: socket.socket) -> None:
    """Forks a broker for each connection."""
    _import_what_brokers_import()
    gc.collect()
    gc.freeze()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                connection, _ = listener.accept()
                pid = _fork(connection)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            else:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                _tell_end(*key.data)


def _import_what_brokers_import() -> None:
    """Imports the broker, and makes the codecs of what clients ask for and of what it asks other brokers."""
    for module in IMPORTED_BY_A_START:
        importlib.import_module(module)
    warm_up()
    for api in APIS.values():
        warm(api.key, api.versions.maximum)
    make_client_codecs()


def _fork(connection: socket.socket) -> int:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as received:
        arguments, directory, environment = json.loads(received.read(int.from_bytes(size, "big")))
    pid = os.fork()
    if pid == 0:
        _become_session_leader(streams)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        os._exit(_run(arguments))
    for stream in streams:
        os.close(stream)
    connection.sendall(b"%d\n" % pid)
    return pid


def _tell_end(pid: int, connection: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    connection.close()


def _become_session_leader(streams: list[int]) -> None:
    """Takes the streams and no other descriptor; a watcher reads the lifeline, stdin, and ends the session with it."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if os.fork() == 0:
        os.execv("/bin/sh", ["sh", "-c", LIFELINE])  # noqa: S606
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _run(arguments: list[str]) -> int:
    """Runs a broker and returns its exit status; the interpreter is not finalized."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    return status


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
