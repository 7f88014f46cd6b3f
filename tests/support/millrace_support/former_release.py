"""The former release, built from the repository's history as a release is: wheel, types and kernel.

with BrokerProcess(tmp_path / "data", program=former_broker()) as broker:
    …

It is built once, in some seconds, and kept in pytest's cache.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace.errors import SetupError

ROOT = Path(__file__).parents[3]
RELEASE = "0f01048c"  # the commit of 0.1.0, or the tag of the version before
KEPT = ROOT / ".pytest_cache" / f"former-release-{RELEASE}-{sys.implementation.cache_tag}"
BUILD_TIMEOUT_S = 300


def former_broker() -> tuple[str, ...]:
    """Returns what Python runs as the broker of the former release.

    Raises:
        SetupError: The history of this clone does not reach back to it.
    """
    path = str(former_packages())
    return "-c", f"import runpy, sys; sys.path[:0] = [{path!r}]; runpy.run_module('millrace_broker', None, '__main__')"


@cache
def former_packages() -> Path:
    """Returns the folder with the packages of the former release, which it makes unless it is there.

    Several processes may make it at a time: the first one's stays.

    Raises:
        SetupError: The history of this clone does not reach back to it.
    """
    if not KEPT.exists():
        KEPT.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=KEPT.parent) as folder:
            _build(Path(folder))
            try:
                Path(folder, "packages").rename(KEPT)
            except OSError:
                if not KEPT.exists():  # no other process was faster
                    raise
    return KEPT


def _build(folder: Path) -> None:
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
