"""An ensemble of ZooKeeper's servers as child processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.ports import free_port
from millrace.zk.embedded import mode_of
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

QUORUM_SETTINGS = ("initLimit=20", "syncLimit=6")


class EmbeddedEnsemble:
    """An ensemble of servers, in the folders DIR/1, DIR/2 …; it serves while a majority of them runs.

    `servers[n]` can be killed and started again by itself.
    """

    def __init__(self, directory: Path, size: int = 3) -> None:
        peers = [(free_port(), free_port()) for _ in range(size)]
        lines = [
            f"server.{number}={LOOPBACK}:{quorum}:{election}" for number, (quorum, election) in enumerate(peers, 1)
        ]
        settings = "\n".join((*QUORUM_SETTINGS, *lines, ""))
        self.servers = [EmbeddedZooKeeper(directory / str(number + 1), 0, settings) for number in range(size)]
        for number, server in enumerate(self.servers, 1):
            server.directory.mkdir(parents=True, exist_ok=True)
            (server.directory / "myid").write_text(f"{number}\n", encoding="utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """All servers, with commas between."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Starts all at once, as none serves before most of them run; raises SetupError as for one server."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(EmbeddedZooKeeper.start, self.servers))

    def stop(self) -> None:
        """Stops all servers of the ensemble."""
        for server in self.servers:
            server.stop()

    def leader(self) -> EmbeddedZooKeeper:
        """Returns the server that leads; raises SetupError while none does."""
        for server in self.servers:
            if mode_of(LOOPBACK, server.port) == "leader":
                return server
        raise SetupError("no server of the ensemble leads")
