"""Compiles the record kernel: one call of the C compiler, `_native` beside its sources.

The build hook of the package (hatch_build.py) runs this file by its path, before there is a package; so it imports
nothing of ours. By hand, after a compiler has come or a source has changed: `python -m millrace.kernel.build`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

DIRECTORY = Path(__file__).parent
SOURCES = (
    *("columns.c", "batches.c", "crc32.c", "crc32c.c", "messages.c", "objects.c", "pymemory.c", "module.c"),
    *("json_text.c", "json_types.c", "json_columns.c", "json_objects.c"),
    *("record_check.c", "record_check_object.c", "valid_batch.c", "request_header.c"),
)
# Python's stable interface since 3.11, the first with buffers: one build serves every later version.
LIMITED_API = "0x030B0000"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
LINK_FLAGS = {"darwin": ("-bundle", "-undefined", "dynamic_lookup")}


class NoCompilerError(Exception):
    """The record kernel can't be compiled on this machine; the message says why."""


def is_stable() -> bool:
    """Returns whether this interpreter has Python's stable ABI, which free-threaded builds don't have yet."""
    return not sysconfig.get_config_var("Py_GIL_DISABLED")


def native_path(directory: Path = DIRECTORY) -> Path:
    """Returns the path of the compiled record kernel in `directory`, which is by default this package's folder."""
    return directory / ("_native.abi3.so" if is_stable() else f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")


def build(target: Path | None = None, flags: Sequence[str] = ()) -> Path:
    """Compiles the record kernel into `target`, by default `native_path()`, and returns its path.

    `flags` are passed to the C compiler. Raises NoCompilerError where the compiler is missing or fails.
    """
    target = target or native_path()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.unlink(missing_ok=True)  # where this fails, no kernel of older sources stays
        result = subprocess.run(_command(unfinished, flags), capture_output=True, text=True, check=False)
        if result.returncode:
            raise NoCompilerError(f"the C compiler failed: {_first_line(result.stderr)}")
        unfinished.replace(target)
    except OSError as error:
        raise NoCompilerError(str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _command(target: Path, flags: Sequence[str]) -> list[str]:
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").is_file():
        raise NoCompilerError(f"no Python.h in {include} (Debian's package python3-dev has it)")
    stable = (f"-DPy_LIMITED_API={LIMITED_API}",) if is_stable() else ()
    link = LINK_FLAGS.get(sys.platform, ("-shared",))
    sources = [str(DIRECTORY / name) for name in SOURCES]
    return [*_compiler(), *FLAGS, *stable, *link, *flags, f"-I{include}", *sources, "-o", str(target)]


def _compiler() -> list[str]:
    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    for program in ("cc", "gcc", "clang"):
        if shutil.which(program):
            return [program]
    raise NoCompilerError("no C compiler (the program cc, in Debian's package gcc)")


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()
    return lines[0] if lines else "it said nothing"


if __name__ == "__main__":
    print(build())  # noqa: T201  # a program's answer
