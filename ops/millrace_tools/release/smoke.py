"""Tries a wheel as a user who has no compiler: an empty environment, the extra `broker`, a record in and out.

    python -m millrace_tools.release.smoke dist/millrace_log-0.1.0-cp311-abi3-….whl [PIP_OPTION …]

PATH has the environment's programs alone, so what had to be compiled would fail, and nothing comes from pip's cache. It
prints the seconds of each step, their sum up to the first acknowledged record, and the processor time of all, which a
busy machine changes less.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from millrace.clock import Clock, SystemClock
from millrace.errors import MillraceError, SetupError

TIMEOUT_S = 300
RECORD = "a record of the smoke test\n"
TOPIC = "smoke"
LISTENING = "listening "
QUIETLY = ("--no-cache-dir", "--quiet", "--disable-pip-version-check")


class Steps:
    """Says how long each step takes, as it is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures the body and prints its seconds."""
        started_s = self._clock.monotonic_s()
        yield
        self.seconds[name] = self._clock.monotonic_s() - started_s
        _say(f"{self.seconds[name]:7.2f} s  {name}")


def try_wheel(wheel: Path, directory: Path, steps: Steps, pip_options: Sequence[str] = ()) -> None:
    """Installs a wheel below a directory and uses it; raises SetupError where that fails."""
    programs = directory / "environment" / "bin"
    with steps.step("an empty environment"):
        venv.create(programs.parent, with_pip=True, symlinks=True)
    with steps.step("the wheel is installed with its extra broker"):
        _run([programs / "pip", "install", *QUIETLY, *pip_options, f"{wheel.resolve()}[broker]"], programs)
    version = _run([programs / "millrace", "--version"], programs)
    _say(version.strip())
    if "kernel: compiled" not in version:
        raise SetupError(f"{wheel}: the record kernel is not compiled: {version.strip()}")
    broker = _started(programs, directory / "data")
    try:
        with steps.step("the broker starts"):
            address = _address(broker)
        with steps.step("a record is acknowledged"):
            _run([programs / "millrace", "produce", TOPIC, "--bootstrap", address], programs, RECORD)
        _say(f"{sum(steps.seconds.values()):7.2f} s  from the wheel to the first acknowledged record")
        with steps.step("the record is consumed"):
            found = _run([programs / "millrace", "consume", TOPIC, "--bootstrap", address], programs)
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait(TIMEOUT_S)
    if (found, broker.returncode) != (RECORD, 0):
        raise SetupError(f"{wheel}: consumed {found!r}, and the broker's exit status is {broker.returncode}")


def _started(programs: Path, data: Path) -> subprocess.Popen[str]:
    command: list[str | Path] = [
        programs / "millrace",
        "broker",
        "--standalone",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(programs))


def _address(broker: subprocess.Popen[str]) -> str:
    line = "" if broker.stdout is None else broker.stdout.readline()
    if not line.startswith(LISTENING):
        raise SetupError("the broker does not start; its log is above")
    return line.removeprefix(LISTENING).strip()


def _run(command: Sequence[str | Path], programs: Path, text: str = "") -> str:
    """Returns what a command prints; raises SetupError where it fails."""
    result = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, env=_environment(programs), check=False
    )
    if result.returncode:
        raise SetupError(f"{' '.join(map(str, command))}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def _environment(programs: Path) -> dict[str, str]:
    return {"PATH": str(programs), "HOME": str(programs.parent)}


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a program's answer


def main(arguments: Sequence[str]) -> int:
    """Tries the wheel that is named first, with further options for pip; returns the exit status."""
    wheel, *pip_options = arguments
    with tempfile.TemporaryDirectory() as directory:
        try:
            try_wheel(Path(wheel), Path(directory), Steps(SystemClock()), pip_options)
        except MillraceError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    _say(f"{used.ru_utime + used.ru_stime:7.2f} s  of processor time in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
