"""A table in HDFS.

All that keeps writers apart rests on what a NameNode does atomically, under one lock and for all of its clients:

    create     a file gets its name by a rename that overwrites nothing: of two, the second fails
    replace    a file gets its name by a rename that overwrites the one before

A file is whole before it gets its name. It lies in the memory of as many DataNodes as it is to have replicas when its
writer closes it, and on their disks where the cluster has `dfs.datanode.synconclose`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.fs as pafs

from millrace_pipelines.warehouse.stores.hdfs_files import HdfsFiles, client_of
from millrace_pipelines.warehouse.stores.options import Options
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, STAGED, FileIdentity, Store


class Hdfs(Store):
    """The files of a table in HDFS.

    Args:
        address: The cluster's own address, such as `hdfs://namenode:8020`.
        path: The table's path, which begins with a slash.
        options: Settings of Hadoop for the client and for delta-rs, beside those of the environment's files.
    """

    is_local = False

    def __init__(self, address: str, path: str, options: Options) -> None:
        self.client = client_of(address, options)
        filesystem = pafs.PyFileSystem(HdfsFiles(self.client))
        super().__init__(f"{address}{path}", filesystem, path, dict(options))

    def make(self) -> None:
        """Creates the folder."""
        self.client.mkdirs(self.root)

    @contextmanager
    def output(self, name: str) -> Iterator[pa.NativeFile]:
        """Opens a new file for writing, in folders that are made; it is complete when the context ends.

        Who creates a file that another one writes takes it away from that one; so each writes to a name of its own.
        """
        with self._named(name) as staged, self.filesystem.open_output_stream(staged) as stream:
            yield stream

    def sync(self, name: str) -> None:
        """Does nothing: a file that was closed is as durable as the cluster makes it."""

    def sync_made(self) -> None:
        """Does nothing: the NameNode has synced what it was told."""

    def sync_commit(self, version: int) -> None:
        """Does nothing: a commit's file that was closed is as durable as the cluster makes it."""

    def identity(self, name: str) -> FileIdentity:  # noqa: ARG002  # a file has no identity beside its path
        """Returns the identity of a file: its table's location."""
        return FileIdentity(self.location, None)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a small file; None where there is none."""
        with suppress(FileNotFoundError):
            return self.client.read(self.path(name)).read()
        return None

    def names(self) -> list[str]:
        """Returns the names of all files outside of the table's log, sorted; none where there is no folder."""
        found = (one.path.removeprefix(f"{self.root}/") for one in self.client.below(self.root) if not one.isdir)
        return sorted(name for name in found if not name.startswith(f"{LOG_DIRECTORY}/"))

    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small file by another one that gets its name."""
        with self._named(name) as staged:
            self.client.write(staged, content(self.identity(name)))

    def create(self, name: str, content: bytes) -> None:
        """Creates a small file, whole or not at all; raises FileExistsError where there is one with another content.

        The same content is this one's own, of an attempt whose answer was lost.
        """
        try:
            with self._named(name, overwrite=False) as staged:
                self.client.write(staged, content)
        except (FileExistsError, FileNotFoundError):
            if self.read(name) != content:
                raise

    def remove(self, name: str) -> None:
        """Removes a file, which may be gone already."""
        self.client.delete(self.path(name))

    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes files, which may be gone already."""
        for name in names:
            self.remove(name)

    @contextmanager
    def _named(self, name: str, *, overwrite: bool = True) -> Iterator[str]:
        """Yields the path for a file that gets its name when the context ends, and is removed unless it got it."""
        staged = f"{self.path(name)}{STAGED}{uuid.uuid4().int}"
        try:
            yield staged
            self.client.rename(staged, self.path(name), overwrite)
        except BaseException:
            self.client.delete(staged)
            raise
