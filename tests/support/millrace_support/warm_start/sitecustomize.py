"""Hands a Python program over to the server of `warm_python` as it starts, and stands for it until it ends.

The interpreter imports this module before the program, where this folder is in PYTHONPATH. It imports as little as it
can, since each program imports it.
"""
# ruff: noqa: INP001  the folder is no package, but a place in PYTHONPATH

import _socket
import json
import os
import signal
import sys
from array import array

SERVER = "MILLRACE_WARM_PYTHON"
COLD = "from multiprocessing.resource_tracker"  # imports so little that it starts as quickly by itself
STARTS = ("-m", "-c")
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def _is_known(arguments: list[str]) -> bool:
    """Returns whether these are `[-u] -m MODULE` or `[-u] -c CODE`, with whatever follows."""
    rest = arguments[1:] if arguments[:1] == ["-u"] else arguments
    return len(rest) > 1 and rest[0] in STARTS and not rest[1].startswith(COLD)


def _hand_over(server: _socket.socket) -> None:
    """Sends the program with all open files to the server, forwards signals, and ends as the program does."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until they can be forwarded
    ignored = [number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    files = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number, server)]
    request = json.dumps([sys.orig_argv[1:], os.getcwd(), dict(os.environ), sys.path, files, ignored]).encode()
    server.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", files))])
    server.sendall(request)
    for number in FORWARDED.difference(ignored):
        signal.signal(number, lambda received, _: server.sendall(bytes([received])))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    status = int(server.recv(16) or b"70")
    if status < 0:
        if -status in FORWARDED:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _is_open(number: int, server: _socket.socket) -> bool:
    try:
        os.fstat(number)
    except OSError:  # that of the listing
        return False
    return number != server.fileno()


if SERVER in os.environ and _is_known(sys.orig_argv[1:]):
    connection = _socket.socket(_socket.AF_UNIX)
    connection.connect(os.environ[SERVER])
    _hand_over(connection)
