"""Starts Python programs without their imports: `python -m MODULE` and `python -c CODE` fork from a warm server.

    environment = warm_python(servers)
    subprocess.run([sys.executable, "-m", "dagster", …], env={**os.environ, **environment})

By the environment each Python that starts, and each that such a program starts, imports `sitecustomize` from the folder
`warm_start`. That one hands its arguments, environment, working directory and open files to the server, which has
imported Dagster, Spark and Millrace and forks; the child runs the same module or code. The first process stays in its
place: it forwards signals and ends as the child ends, and where it is killed, so is the child's process group.

The child has another process id and its own process group, and lives on for a moment after the first process is killed,
so tests that look at processes or kill them start the real thing, under `cold_programs`.

The loads of `test_dagster_loads.py` take 26 s of processor time instead of 38. What it hides is a module that a program
misses when it imports for itself; `test_up.py` starts the broker and Dagster's servers so, and `test_cold_starts.py` a
load.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace_support.warm_servers import WarmServers

SERVER = "warm_python_server"
START = Path(__file__).with_name("warm_start")
ADDRESS = "MILLRACE_WARM_PYTHON"


def warm_python(servers: WarmServers) -> dict[str, str]:
    """Returns the environment of warm programs, once the server is warm."""
    path = [str(START), *filter(None, sys.path)]
    environment = {ADDRESS: servers.address_of(SERVER), "PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, "-c", "pass"], env=os.environ | environment, check=True)
    return environment


@contextmanager
def cold_programs() -> Iterator[None]:
    """Lets the programs that this process starts in the context start by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(ADDRESS, raising=False)
        yield
