"""A broker one of whose threads waits, after it has opened a certain file, until a test lets it go on.

    door = HeldDoor(tmp_path, ".cleaned")
    with BrokerProcess(tmp_path / "broker", program=door.program) as broker:
        …                     # until door.is_reached
        door.open()

The file exists when the thread waits.
"""

from __future__ import annotations

from pathlib import Path

PROGRAM = """
import os, sys, time
from millrace.fs import OsFileSystem

opened = OsFileSystem.open


def held(self, path, *, create=False):
    fd = opened(self, path, create=create)
    while {part!r} in path and os.path.exists({held!r}):
        os.close(os.open({reached!r}, os.O_CREAT))
        time.sleep(0.01)
    return fd


OsFileSystem.open = held
from millrace_broker.__main__ import main
sys.exit(main())
"""


class HeldDoor:
    """Holds threads of a broker until the test calls `open`.

    Args:
        folder: The folder of the files by which the test and the broker signal each other.
        part: A part of the path of the file at which the broker waits.
    """

    def __init__(self, folder: Path, part: str) -> None:
        self._held, self._reached = folder / "held", folder / "reached"
        self._held.touch()
        self.program = ("-c", PROGRAM.format(part=part, held=str(self._held), reached=str(self._reached)))

    @property
    def is_reached(self) -> bool:
        """Returns whether a thread of the broker has come to the door."""
        return self._reached.exists()

    def open(self) -> None:
        """Lets the waiting thread go on; no thread waits after that."""
        self._held.unlink()
