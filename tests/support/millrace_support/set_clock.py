"""A machine's clock that a test sets, as a broker's process sees it: the wall clock, and not the monotonic one.

clock = SetClock(tmp_path / "clock")
with BrokerProcess(tmp_path / "data", program=clock.program) as broker:
    clock.set(3600)  # an hour ahead from now on
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from millrace.clock import SystemClock


class SetClock:
    """The clock, as the test sees it; a file has by how many seconds it is ahead."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.program = (__file__, str(file))
        self.set(0)

    def set(self, ahead_s: float) -> None:
        """Sets it, at once."""
        new = self._file.with_suffix(".new")
        new.write_text(str(ahead_s))
        os.replace(new, self._file)


def run_broker(file: str) -> int:
    """Runs the broker with the clock, and with the other arguments of the process."""
    from millrace_broker.__main__ import main  # noqa: PLC0415 -- the test that imports this needs no broker

    def now_ns(_: SystemClock) -> int:
        return read_ns() + int(float(Path(file).read_text()) * 1e9)

    read_ns = SystemClock.now_ns
    SystemClock.now_ns = now_ns  # type: ignore[assignment]
    SystemClock.now_ms = lambda self: now_ns(self) // 1_000_000  # type: ignore[method-assign]
    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(run_broker(sys.argv[1]))
