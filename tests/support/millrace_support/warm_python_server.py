"""The server behind `warm_python`: `warm_python_server.py DESCRIPTOR`, the number of its listening socket.

A connection brings the size of the request (4 bytes, big-endian) beside the open files of the program, then the request
in JSON: the interpreter's arguments, working directory, environment, module path, the numbers of the files, and the
signals that are ignored. What follows is signals, a byte each. The answer is the exit status as text.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from types import ModuleType
from typing import NamedTuple, NoReturn

from millrace_support.client_codecs import make_client_codecs

MODULES = (
    "dagster._cli",
    "dagster._cli.api",
    "dagster._cli.code_server",
    "dagster._daemon.cli",
    "dagster._daemon.controller",
    "dagster._grpc.proxy_server",
    "dagster._core.instance_for_test",
    "dagster_dg_cli.cli",
    "dagster_webserver.cli",
    "dagster_webserver.app",
    "millrace_broker.__main__",
    "millrace_pipelines.runs.child",
    "pandas",  # PyArrow and PySpark import it late
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.testing",
)
PACKAGES = ("millrace_broker", "millrace_pipelines")  # with all of their modules
LEFT_OUT = "millrace_pipelines.definitions"  # reads the project of its platform when it is imported
MAX_FILES = 200


class Program(NamedTuple):
    """What a program is started with."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]
    path: list[str]
    files: list[int]
    ignored: list[int]


def serve(listener: socket.socket) -> None:
    """Forks for each connection, until stdin ends."""
    _import_all()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.setsid()  # a signal to the group of the server leaves this process, which then ends its program
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection)
            os._exit(0)
        connection.close()


def _import_all() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__") and found.name != LEFT_OUT:
                importlib.import_module(found.name)
    make_client_codecs()


def _answer(connection: socket.socket) -> None:
    """Starts the program of a connection, passes signals on, and sends its exit status."""
    size, files, _, _ = socket.recv_fds(connection, 4, MAX_FILES)
    with connection.makefile("rb") as received:
        program = Program(*json.loads(received.read(int.from_bytes(size, "big"))))
    if (child := os.fork()) == 0:
        _run(program, files)
    for file in files:
        os.close(file)
    connection.sendall(b"%d" % os.waitstatus_to_exitcode(_end_of(child, connection)))


def _end_of(child: int, connection: socket.socket) -> int:
    """Waits for a child's end; kills its group where the process that stands for it is gone."""
    ended = os.pidfd_open(child)
    while True:
        readable, _, _ = select.select([ended, connection.fileno()], [], [])
        if ended in readable:
            return os.waitpid(child, 0)[1]
        signals = connection.recv(16)
        for number in signals:
            os.kill(child, number)
        if not signals:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os._exit(0)


def _run(program: Program, files: list[int]) -> NoReturn:
    """Becomes the program, and ends as the interpreter does, but without finalizing its modules."""
    os.setpgid(0, 0)
    _take_files(program, files)
    for number in program.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(program.directory)
    os.environ.clear()
    os.environ.update(program.environment)
    status = _status_of(program)
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  as the interpreter does at its end
    atexit._run_exitfuncs()  # noqa: SLF001  likewise
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _take_files(program: Program, files: list[int]) -> None:
    """Gives each file the number that it has in the program, and closes what is open besides."""
    above = max([*program.files, *files, 2]) + 1
    moved = [os.dup2(file, above + index) for index, file in enumerate(files)]
    os.closerange(0, above)
    for file, number in zip(moved, program.files, strict=True):
        os.dup2(file, number)
    os.closerange(above, above + len(files))


def _status_of(program: Program) -> int:
    """Runs the module or the code as `__main__`, and returns the exit status."""
    arguments = list(program.arguments)
    if arguments[0] == "-u" or "PYTHONUNBUFFERED" in program.environment:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    kind, what, *rest = arguments[1:] if arguments[0] == "-u" else arguments
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.argv = [kind, *rest]
    sys.path = ["" if kind == "-c" else program.directory, *program.path]
    importlib.invalidate_caches()
    try:
        if kind == "-c":
            exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102  it is the program
        else:
            runpy._run_module_as_main(what)  # type: ignore[attr-defined]  # noqa: SLF001  as `python -m` does
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
