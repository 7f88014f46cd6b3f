"""The broker of the version before, built from the repository's history as a release is: wheel, types and kernel.

with BrokerProcess(tmp_path / "data", program=former_broker(tmp_path / "before")) as broker:
    …
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from millrace.errors import SetupError

ROOT = Path(__file__).parents[3]
RELEASE = "0f01048c"  # the commit of 0.1.0, or the tag of the version before
BUILD_TIMEOUT_S = 300


def former_broker(folder: Path) -> tuple[str, ...]:
    """Returns what Python runs as the broker of the version before, whose wheel is built and unpacked in a new folder.

    Raises:
        SetupError: The history of this clone does not reach back to it.
    """
    folder.mkdir()
    archive = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise SetupError(f"the history of this repository does not reach back to {RELEASE}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder / "sources", filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=folder / "sources", capture_output=True, check=True, timeout=BUILD_TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder / "packages")  # noqa: S202 -- the wheel is our own
    path = str(folder / "packages")
    return "-c", f"import runpy, sys; sys.path[:0] = [{path!r}]; runpy.run_module('millrace_broker', None, '__main__')"
