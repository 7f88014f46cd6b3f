"""The command of a real ZooKeeper, from the jars that PySpark carries, and the sign that it serves.

    DIR/zoo.cfg         written at every start
    DIR/version-2/      snapshots and transaction log, ZooKeeper's own; a start on the same folder keeps the data

It is ready when `srvr` answers with a mode (`ruok` answers too early) and `conf` names our folder: another
server may have taken the port.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.extras import install_command
from millrace.java import find_java

JARS = ("zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
NETTY_JARS = tuple(
    f"netty-{one}-[0-9]*[0-9].Final"
    for one in ("buffer", "common", "codec-base", "handler", "resolver", "transport", "transport-classes-epoll",
                "transport-native-unix-common")
)  # fmt: skip
NEED_NETTY = ("secureClientPort=", "authProvider.")  # settings whose classes don't load without Netty
JAVA_FLAGS = (
    *("-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xss512k"),
    "-Dzookeeper.jmx.log4j.disable=true",
)
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
CONFIG_FILE = "zoo.cfg"
PORT = re.compile(r"^clientPort=(\d{1,5})$", re.MULTILINE)
CONFIG = """\
clientPort={port}
clientPortAddress={host}
dataDir={directory}
tickTime=500
minSessionTimeout=2000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
QUORUM_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ANSWER_TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 65_536
NOT_SERVING = b"This ZooKeeper instance is not currently serving requests\n"


def server_command(directory: Path, port: int, settings: str = "", java_flags: Sequence[str] = ()) -> tuple[str, ...]:
    """Writes a ZooKeeper server's configuration to `directory`, and returns the command that runs it on loopback.

    `settings` are further lines of the configuration. Raises SetupError where Java or the jars are missing.
    """
    jars = _jars(has_netty=any(one in settings for one in NEED_NETTY))
    java, class_path = find_java(), ":".join(map(str, jars))
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / CONFIG_FILE
    lines = CONFIG.format(port=port, host=LOOPBACK, directory=directory.absolute()) + settings
    config.write_text(lines, encoding="utf-8")
    main_class = QUORUM_MAIN_CLASS if "\nserver." in lines else MAIN_CLASS
    return (str(java), *JAVA_FLAGS, *java_flags, "-cp", class_path, main_class, str(config))


def former_port(directory: Path) -> int | None:
    """Returns the port of the server that was last started on this folder; None where there was none."""
    try:
        found = PORT.search((directory / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


def is_serving(host: str, port: int, directory: Path | None = None) -> bool:
    """Returns whether a ZooKeeper server serves at this port, with its data in `directory` if that is given."""
    try:
        if mode_of(host, port) is None:
            return False
        return directory is None or f"dataDir={directory.absolute()}/" in _ask(host, port, b"conf")
    except OSError:
        return False


def mode_of(host: str, port: int) -> str | None:
    """Returns the mode of a ZooKeeper server: `standalone`, `leader` or `follower`; None where none serves."""
    try:
        _, found, rest = _ask(host, port, b"srvr").partition("Mode:")
    except OSError:
        return None
    return rest.split(maxsplit=1)[0] if found else None


def _ask(host: str, port: int, word: bytes) -> str:
    """Returns a server's answer to a four-letter word such as `srvr`; reads until the end or NOT_SERVING."""
    with socket.create_connection((host, port), ANSWER_TIMEOUT_S) as connection:
        connection.sendall(word)
        answer = b""
        while answer != NOT_SERVING and len(answer) < MAX_ANSWER_BYTES and (chunk := connection.recv(4096)):
            answer += chunk
    return answer.decode(errors="replace")


def _jars(*, has_netty: bool) -> list[Path]:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"ZooKeeper comes with PySpark, which is not installed: {install_command('spark')}")
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    patterns = (*JARS, *NETTY_JARS) if has_netty else JARS
    found = [sorted(folder.glob(f"{pattern}.jar")) for pattern in patterns]
    missing = [pattern for pattern, jars in zip(patterns, found, strict=True) if not jars]
    if missing:
        raise SetupError(f"ZooKeeper's jars {', '.join(missing)} are not in {folder}")
    return [jars[0] for jars in found]
