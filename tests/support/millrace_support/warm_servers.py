"""The servers that fork warm programs: all processes of a run share them, and each starts with its first client.

    DIR/lifeline         a named pipe that the first process of the run holds open; a server ends when that does
    DIR/lock             held while a server is started
    DIR/NAME.socket      where the server NAME listens; it exists once somebody has started the server

A server is a program beside this module. It gets the number of its listening socket as its argument and the lifeline as
its standard input. It is no child of the process that has started it, since what it forks may belong to any process
of the run. A crash of the run ends all servers, and leaves the folder behind. It does not find the modules beside it by
their bare names (`-P`), as one of those may have the name of a package.
"""

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

LIFELINE = "lifeline"
ORPHANED = [sys.executable, "-IS", "-c", "import os, sys; os.fork() or os.execv(sys.argv[1], sys.argv[1:])"]


@contextmanager
def folder_of_servers() -> Iterator[Path]:
    """Yields a folder for `WarmServers`, whose servers end with the context, and with this process."""
    with TemporaryDirectory(prefix="millrace-warm-") as name:
        lifeline = Path(name, LIFELINE)
        os.mkfifo(lifeline)
        held = os.open(lifeline, os.O_RDWR)
        try:
            yield Path(name)
        finally:
            os.close(held)


class WarmServers:
    """The servers of a run, as one of its processes sees them.

    Args:
        folder: What `folder_of_servers` yields in the first process of the run.

    Attributes:
        folder: The same.
        environment: The variables that a server has, beside its path of modules: those that this process has now.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: Mapping[str, str] = dict(os.environ)

    def address_of(self, name: str) -> str:
        """Returns the path of the socket of a server, a module of this package; starts the server if nobody has."""
        address = self.folder / f"{name}.socket"
        with (self.folder / "lock").open("w") as one_at_a_time:
            fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
            if not address.exists():
                self._start(name, address)
        return str(address)

    def connect(self, name: str) -> socket.socket:
        """Returns a connection to a server; starts the server if nobody has."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address_of(name))
        return connection

    def _start(self, name: str, address: Path) -> None:
        program = Path(__file__).with_name(f"{name}.py")
        with socket.socket(socket.AF_UNIX) as listener, (self.folder / LIFELINE).open("rb") as lifeline:
            listener.bind(str(address))
            listener.listen()
            subprocess.run(
                [*ORPHANED, sys.executable, "-P", str(program), str(listener.fileno())],
                stdin=lifeline,
                pass_fds=[listener.fileno()],
                env={**self.environment, "PYTHONPATH": str(program.parents[1])},
                start_new_session=True,
                check=True,
            )
