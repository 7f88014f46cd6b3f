"""The last good copy of a project's files: definitions are made of it while the files themselves have a fault.

    DIR/.last_good/DIGEST/    dg.toml and defs/, as they were when they last could be loaded
    DIR/.last_good/current    a link to the newest of these
    DIR/.last_good/fault      what is wrong with the files; missing where nothing is

A copy is made in whole or not at all, and is never changed, as runs under way read it. Its `.local_defs_state` is a
link to the project's own. A project whose folder can't be written has no copy.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path

FOLDER = ".last_good"
CURRENT = "current"
FAULT = "fault"
DEFS = "defs"
STATE = ".local_defs_state"
PROJECT_FILES = ("dg.toml", "pyproject.toml")
IGNORED = (".*", "*~", "__pycache__")  # such as what editors keep beside a file that is open
COPIES = 10  # the files of a run that is under way stay while there are fewer changes than these
DIGEST_BYTES = 8
FIRST = "MILLRACE_LAST_GOOD_FIRST"
"""The variable by which definitions are made of the copy in any case; workers of runs have it."""

logger = logging.getLogger(__name__)


def digest_of(root: Path) -> str:
    """Returns a text that changes when a file of the project changes, by name, size and time of change."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for path in _files(root):
        with suppress(FileNotFoundError):  # an editor has just replaced it
            status = path.stat()
            found.update(f"{path.relative_to(root)}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return found.hexdigest()


def keep(root: Path, digest: str) -> None:
    """Makes the files with this digest the last good ones, unless they have changed meanwhile."""
    folder, copy = root / FOLDER, root / FOLDER / digest
    try:
        if not copy.is_dir():
            _copy(root, copy)
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
            if digest_of(root) != digest:
                shutil.rmtree(copy)
                return
        link = folder / f"{CURRENT}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(digest)
        link.replace(folder / CURRENT)
        _remove_old(folder, copy)
    except OSError as error:
        logger.warning("the files of %s are not kept as the last good ones: %s", root, error)
        with suppress(OSError):
            (folder / CURRENT).unlink(missing_ok=True)  # which is of older definitions than those that are loaded


def good_copy(root: Path) -> Path | None:
    """Returns the folder of the project as it was last loaded without a fault; None where there is no such copy."""
    copy = (root / FOLDER / CURRENT).resolve()
    return copy if (copy / DEFS).is_dir() else None


def original(path: Path) -> Path:
    """Returns the path in the project that a path in a copy stands for; any other path stays as it is."""
    parts = path.parts
    if FOLDER not in parts:
        return path
    place = parts.index(FOLDER)
    return Path(*parts[:place], *parts[place + 2 :])


def note_fault(root: Path, fault: str) -> None:
    """Notes what is wrong with the files of a project; "" for nothing."""
    file = root / FOLDER / FAULT
    with suppress(OSError):
        if fault:
            file.parent.mkdir(exist_ok=True)
            file.write_text(fault, encoding="utf-8")
        else:
            file.unlink(missing_ok=True)


def noted_fault(root: Path) -> str:
    """Returns what was wrong with the files of a project when they were last loaded; "" for nothing."""
    with suppress(OSError):
        return (root / FOLDER / FAULT).read_text(encoding="utf-8")
    return ""


def _files(root: Path) -> list[Path]:
    inside = [path for path in (root / DEFS).rglob("*") if not any(map(_is_ignored, path.relative_to(root).parts))]
    return sorted(path for path in (*(root / name for name in PROJECT_FILES), *inside) if path.is_file())


def _is_ignored(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in IGNORED)


def _copy(root: Path, copy: Path) -> None:
    """Copies the project's files; the copy has its name only once it is whole."""
    begun = copy.with_name(f"{copy.name}.{os.getpid()}")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    for name in PROJECT_FILES:
        with suppress(FileNotFoundError):
            shutil.copy2(root / name, begun)
    shutil.copytree(root / DEFS, begun / DEFS, ignore=shutil.ignore_patterns(*IGNORED))
    (begun / DEFS / STATE).symlink_to(Path("..", "..", "..", DEFS, STATE))
    (root / DEFS / STATE).mkdir(exist_ok=True)
    try:
        begun.replace(copy)
    except OSError:
        if not copy.is_dir():  # else another process was faster
            raise
        shutil.rmtree(begun)


def _remove_old(folder: Path, newest: Path) -> None:
    others = [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink() and one != newest]
    for one in sorted(others, key=lambda copy: copy.stat().st_ctime)[: 1 - COPIES]:
        shutil.rmtree(one)
