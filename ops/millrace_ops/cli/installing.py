"""What a command lacks is installed when it is asked for: a person at a terminal is asked, everybody else is told.

    $ millrace warehouse load orders --table ./orders
    warehouse load needs the extra 'spark', up to 570 MB. Install it now? [y/n] (n):

So an installation begins with what a broker and clients need, and Spark comes with the first load. pip draws its
progress.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from millrace.errors import SetupError
from millrace.extras import install_command, missing_extras, named, require, requirement
from millrace_ops.cli.output import confirm

SIZES_MB = {"broker": 40, "tables": 430, "spark": 570, "dagster": 150, "pipelines": 1150, "query": 70, "demo": 30}
"""The room that the packages of an extra take on the disk, about, where none of them is there."""


def ensure(what: str, *extras: str) -> None:
    """Installs the extras that `what` lacks, if a person at a terminal agrees; else raises SetupError."""
    missing = missing_extras(*extras)
    if not missing or not (sys.stdin.isatty() and sys.stderr.isatty()):
        require(what, *extras)
        return
    size = sum(SIZES_MB.get(extra, 0) for extra in missing)
    question = f"{what} needs {named(*missing)}, up to {size} MB. Install {'it' if len(missing) == 1 else 'them'} now?"
    if not confirm(question, is_confirmed=False):
        require(what, *extras)
    _install(*missing)
    importlib.invalidate_caches()
    require(what, *extras)


def _install(*extras: str) -> None:
    """Runs pip, which draws its progress on stderr; raises SetupError where it fails."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", requirement(*extras)]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise SetupError(f"pip did not install {named(*extras)}: {install_command(*extras)} says why")
