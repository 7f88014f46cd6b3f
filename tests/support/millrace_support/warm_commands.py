"""Runs `millrace` without importing it for each command: a program `millrace` in a folder that is put before PATH.

    with warm_commands(tmp_path / "bin") as folder:
        subprocess.run("echo 1 | millrace produce t", shell=True, env={"PATH": f"{folder}:{os.environ['PATH']}", …})

The program hands its arguments, environment, working directory and standard streams to a server over a Unix socket. The
server has imported the command line and forks; the child runs the command as the console script does, and the program
ends with its exit status. Of the signals to the program only SIGTERM reaches the command: whoever sends another one, or
looks at the process, starts the real thing. The program imports only what is compiled into the interpreter, since it
starts for each command.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = Path(__file__).with_name("warm_command_server.py")
PROGRAM = """\
#!{python} -IS
import _signal, _socket, os, sys

server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
_signal.signal(_signal.SIGTERM, lambda *_: server.send(b"."))
variables = [b"%b=%b" % one for one in os.environb.items()]
parts = [os.getcwdb(), b"%d" % len(sys.argv), *map(os.fsencode, sys.argv), *variables]
request = b"\\0".join(parts)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
sys.exit(int(server.recv(16) or 70))
"""


@contextmanager
def warm_commands(folder: Path) -> Iterator[Path]:
    """Yields the folder for PATH, in which it has written the program; the server ends with the context."""
    folder.mkdir(parents=True)
    address = str(folder / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    program = folder / "millrace"
    program.write_text(PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o755)
    command = [sys.executable, str(SERVER), str(listener.fileno())]
    with subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL) as server:
        listener.close()
        try:
            yield folder
        finally:
            server.kill()
