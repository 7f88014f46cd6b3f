"""An archive with this Python and what Millrace's tasks import, for Spark's executors on machines that have neither.

    bin/python                   starts the interpreter with the archive's own libraries, and none of a user's packages
    bin/python3.11               the interpreter
    lib/libpython3.11.so.1.0     its code, where that is a library
    lib/python3.11/              the standard library, and the packages in site-packages

The packages have the versions of this environment, so that executors understand what the driver has pickled. They are
Millrace's own, and those that its extras `tables` and `spark` require; PySpark is left out, as an executor has that of
its Spark. Libraries of the system are not in it: executors need the driver's processor and a C library as new as its.
"""

from __future__ import annotations

import io
import os
import platform
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from millrace.errors import SetupError
from millrace.extras import DISTRIBUTION, named
from millrace.fs import TEMPORARY_SUFFIX

EXTRAS = frozenset({"tables", "spark"})
OF_SPARK = frozenset({"py4j", "pyspark"})
OUR_PACKAGES = ("millrace", "millrace_pipelines")
SUFFIX = ".tar.gz"
COMPRESSION_LEVEL = 1  # higher ones take three times as long and save a twentieth
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES_FOLDER = f"lib/{PYTHON}/site-packages"
UNUSED = frozenset({"__pycache__", "include", "test", "tests"})
UNUSED_IN_LIBRARY = UNUSED | {
    *("dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "tkinter", "turtledemo"),
    f"config-{sys.version_info.major}.{sys.version_info.minor}-{sysconfig.get_config_var('MULTIARCH')}",
}
STARTER = f"""#!/bin/sh
here=$(dirname "$0")
export LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" PYTHONNOUSERSITE=1
exec "$here/{PYTHON}" "$@"
"""


class Packed(NamedTuple):
    """What an archive has: the version of Python, how many packages, and its size."""

    python: str
    packages: int
    size_bytes: int


def pack_environment(file: Path) -> Packed:
    """Writes the archive of this environment to a file, which replaces one of that name once it is whole.

    Raises SetupError for a name that Spark would not unpack, and where a package is not installed.
    """
    if not file.name.endswith(SUFFIX):
        raise SetupError(f"{file}: Spark unpacks archives by their names, and this one is to end with {SUFFIX}")
    distributions = required_distributions()
    temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
    try:
        with tarfile.open(temporary, "w:gz", compresslevel=COMPRESSION_LEVEL, dereference=True) as archive:
            _add_starter(archive)
            for name, path in sorted(_contents(distributions).items()):
                archive.add(path, name, recursive=False)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return Packed(platform.python_version(), len(distributions), file.stat().st_size)


def required_distributions() -> list[Distribution]:
    """Returns Millrace's own distribution and all that its tasks need; raises SetupError where one is missing."""
    if unknown := EXTRAS.difference(_installed(DISTRIBUTION).metadata.get_all("Provides-Extra", ())):
        raise SetupError(f"{DISTRIBUTION} is installed without knowing {named(*sorted(unknown))}: install it again")
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(DISTRIBUTION), EXTRAS)]
    while waiting:
        wanted = waiting.pop()
        if wanted in seen or wanted[0] in OF_SPARK:
            continue
        seen.add(wanted)
        found[wanted[0]] = _installed(wanted[0])
        waiting += [
            (canonicalize_name(one.name), frozenset(one.extras))
            for one in map(Requirement, found[wanted[0]].requires or ())
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *wanted[1]))
        ]
    return list(found.values())


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise SetupError(f"executors need the package {name}, which is not installed here") from None


def _contents(distributions: list[Distribution]) -> dict[str, Path]:
    """Returns the files of the archive, by their names in it."""
    base = Path(sys.base_prefix)
    contents = {f"bin/{PYTHON}": base / "bin" / PYTHON}
    shared = base / "lib" / str(sysconfig.get_config_var("INSTSONAME"))
    if shared.is_file():
        contents[f"lib/{shared.name}"] = shared
    contents |= _below(Path(sysconfig.get_path("stdlib")), f"lib/{PYTHON}", UNUSED_IN_LIBRARY)
    for one in distributions:
        contents |= {f"{PACKAGES_FOLDER}/{name}": path for name, path in _files(one)}
    for package in OUR_PACKAGES:  # wherever they lie, for a clone is installed by its path alone
        found = find_spec(package)
        assert found is not None
        for folder in found.submodule_search_locations or ():
            contents |= _below(Path(folder), f"{PACKAGES_FOLDER}/{package}", UNUSED)
    return contents


def _files(one: Distribution) -> Iterator[tuple[str, Path]]:
    """Yields the name in `site-packages` and the path of each file that a distribution has there."""
    for file in one.files or ():
        path = Path(str(file.locate()))
        if UNUSED.isdisjoint(file.parts) and ".." not in file.parts and file.suffix != ".pth" and path.is_file():
            yield str(file), path


def _below(folder: Path, name: str, unused: frozenset[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if one not in unused]
        inside = Path(root).relative_to(folder)
        found |= {str(Path(name, inside, file)): Path(root, file) for file in files}
    return found


def _add_starter(archive: tarfile.TarFile) -> None:
    starter = tarfile.TarInfo("bin/python")
    starter.size, starter.mode = len(STARTER), 0o755
    archive.addfile(starter, io.BytesIO(STARTER.encode()))
