"""What holds back the requests of a connection until somebody has authenticated."""

from __future__ import annotations

from typing import Protocol


class Gate(Protocol):
    """The gate of one connection."""

    def admits(self, frame: memoryview) -> bool:
        """Returns whether a frame is a request to handle; answers others itself. A WireError ends the connection."""
        ...

    def close(self) -> None:
        """Waits no longer for anybody, as the connection has ended."""
        ...
