"""Compares a folder before and after: names, sizes, times of change and contents of all that is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """A file or a folder: its size, when it or its metadata changed, and what it holds; a folder has no hash."""

    size_bytes: int
    modified_ns: int
    changed_ns: int
    sha256: str


def contents(folder: Path) -> dict[str, Entry]:
    """Returns the folder itself and everything below it, by path."""
    return {str(path.relative_to(folder)): _entry(path) for path in (folder, *sorted(folder.rglob("*")))}


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Asserts that the block changes nothing in the folder, even where it raises."""
    before = contents(folder)
    try:
        yield
    finally:
        assert contents(folder) == before


def _entry(path: Path) -> Entry:
    status = path.stat()
    content = path.read_bytes() if path.is_file() else b""
    return Entry(status.st_size, status.st_mtime_ns, status.st_ctime_ns, hashlib.sha256(content).hexdigest())
