"""Small files in HDFS that are replaced only as they were read, which HDFS itself has no call for; leases need it.

    NAME/<number>      a version of the file NAME, which is a folder; the highest number is the file as it is now

    create    a folder with the version 0 gets its name by a rename that overwrites nothing
    update    the version after the one that was read gets its name by such a rename, then those before it are removed
    remove    the folder is deleted with all versions, at once

Of two that update the same version, the second finds the number taken. One that read an older version, and takes a
number that was removed meanwhile, finds a higher one, for there is always one. In a folder that is gone nothing can be
made, and its name is not given again. Times are the NameNode's, of when the version was written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millrace_pipelines.warehouse.errors import StoreError
from millrace_pipelines.warehouse.stores.bucket import Known
from millrace_pipelines.warehouse.stores.bucket_files import ObjectFacts
from millrace_pipelines.warehouse.stores.hdfs import Hdfs
from millrace_pipelines.warehouse.stores.store import STAGED

if TYPE_CHECKING:
    from hdfs_native import FileStatus

READ_ATTEMPTS = 10


class VersionedFiles:
    """Files of a table in HDFS with versions."""

    def __init__(self, store: Hdfs) -> None:
        self.location = store.location
        self._store = store
        self._client = store.client

    def check_promises(self) -> None:
        """Does nothing: renames are atomic in every HDFS."""

    def create(self, name: str, content: bytes) -> None:
        """Creates a small file; raises FileExistsError where there is one."""
        path = self._store.path(name)
        staged = f"{path}{STAGED}{uuid.uuid4().int}"
        self._client.write(f"{staged}/0", content)
        try:
            self._client.rename(staged, path)
        except BaseException:
            self._client.delete(staged, recursive=True)
            raise

    def update(self, name: str, content: bytes, facts: ObjectFacts) -> None:
        """Replaces a small file as it was read; raises FileExistsError or FileNotFoundError where it has changed."""
        path, number = self._store.path(name), int(facts.version or 0) + 1
        staged = f"{path}/{number}{STAGED}{uuid.uuid4().int}"
        self._client.write(staged, content, create_parent=False)
        try:
            self._client.rename(staged, f"{path}/{number}")
        except BaseException:
            self._client.delete(staged)
            raise
        numbers = sorted(_number(one.path) for one in self._versions(name))
        if numbers[-1] != number:
            raise FileExistsError(f"{path}: a later version is there")
        for old in numbers[:-1]:
            self._client.delete(f"{path}/{old}")

    def fetch(self, name: str) -> Known | None:
        """Returns a small file as it is now; None where there is none."""
        for _ in range(READ_ATTEMPTS):  # a version may be replaced before it is read
            try:
                newest = max(self._versions(name), key=lambda one: _number(one.path))
            except FileNotFoundError:
                return None
            content = self._store.read(newest.path.removeprefix(f"{self._store.root}/"))
            if content is not None:
                return Known(content, _facts(name, newest))
        raise StoreError(f"{self.location}: {name} is replaced faster than it can be read")

    def facts_below(self, folder: str) -> dict[str, ObjectFacts]:
        """Returns the facts of all files in a folder, by their names in the table."""
        newest: dict[str, FileStatus] = {}
        for one in self._below(folder):
            name = one.path.removeprefix(f"{self._store.root}/").rpartition("/")[0]
            if name not in newest or _number(one.path) > _number(newest[name].path):
                newest[name] = one
        return {name: _facts(name, one) for name, one in newest.items()}

    def remove(self, name: str) -> None:
        """Removes a file, which may be gone already."""
        self._client.delete(self._store.path(name), recursive=True)

    def _below(self, folder: str) -> Iterator[FileStatus]:
        """Returns the versions of all files below a folder."""
        found = self._client.below(self._store.path(folder))
        return (one for one in found if not one.isdir and one.path.rpartition("/")[2].isdecimal())

    def _versions(self, name: str) -> list[FileStatus]:
        """Returns the versions of a file, at least one; raises FileNotFoundError where there is none."""
        found = list(self._below(name))
        if not found:
            raise FileNotFoundError(f"{self._store.location}/{name}: no such file")
        return found


def _number(path: str) -> int:
    return int(path.rpartition("/")[2])


def _facts(name: str, version: FileStatus) -> ObjectFacts:
    modified = datetime.fromtimestamp(version.modification_time / 1000, UTC)
    return ObjectFacts(name, version.length, modified, None, str(_number(version.path)))
