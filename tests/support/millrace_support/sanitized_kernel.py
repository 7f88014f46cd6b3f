"""Compiles the record kernel for AddressSanitizer and UBSan, in a copy of the package that Python then imports."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import millrace
from millrace.errors import SetupError
from millrace.kernel.build import NoCompilerError, build, native_path

PACKAGE = Path(millrace.__file__).parent
SUPPORT = Path(__file__).parents[1]
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")
RUNTIMES = ("libasan.so", "libubsan.so")


def sanitized_environment(directory: Path) -> dict[str, str]:
    """Compiles into a copy below `directory`, and returns the environment in which Python imports that copy.

    The first memory error or undefined behaviour ends such a process with a report on stderr. Leaks are not searched
    for, because Python's own would be found.

    Raises:
        SetupError: There is no gcc, or it lacks these libraries.
    """
    copy = directory / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    try:
        build(native_path(copy / "kernel"), FLAGS)
    except NoCompilerError as error:
        raise SetupError(f"no kernel for AddressSanitizer: {error}") from error
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (directory, SUPPORT))),
        "LD_PRELOAD": " ".join(_runtime(name) for name in RUNTIMES),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that reads beyond Python's own objects are seen too
    }


def _runtime(name: str) -> str:
    compiler = os.environ.get("CC", "gcc")
    try:
        asked = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"no {name}: {error}") from error
    path = asked.stdout.strip()
    if not Path(path).is_absolute():
        raise SetupError(f"this compiler has no {name}")
    return path
