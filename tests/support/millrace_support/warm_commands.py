"""Runs `millrace` without importing it for each command: a program `millrace` in a folder that is put before PATH.

    program = warm_commands(servers, tmp_path)
    subprocess.run("echo 1 | millrace produce t", shell=True, env={"PATH": f"{tmp_path}:{os.environ['PATH']}", …})

The program hands its arguments, environment, working directory and standard streams to a server over a Unix socket. The
server has imported the command line and forks; the child runs the command as the console script does, and the program
ends with its exit status. Of the signals to the program only SIGTERM reaches the command: whoever sends another one, or
looks at the process, starts the real thing. The program imports only what is compiled into the interpreter, since it
starts for each command.

What it hides is a module that a command misses when it imports for itself; `tests/integration/test_cold_starts.py`
starts each command so. The transcripts of the command line take 23 s of processor time instead of 250.
"""

import sys
from pathlib import Path

from millrace_support.warm_servers import WarmServers

SERVER = "warm_command_server"
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


def warm_commands(servers: WarmServers, folder: Path) -> Path:
    """Writes the program into the folder, and returns its path."""
    program = folder / "millrace"
    program.write_text(PROGRAM.format(python=sys.executable, address=servers.address_of(SERVER)))
    program.chmod(0o755)
    return program
