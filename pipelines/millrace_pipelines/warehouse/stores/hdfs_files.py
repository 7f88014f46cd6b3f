"""The files of an HDFS cluster: a client of its NameNode, whose errors are those of stores, and pyarrow's files."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import pyarrow as pa
import pyarrow.fs as pafs
from hdfs_native import Client, FileReader, FileStatus, FileWriter, WriteOptions

from millrace_pipelines.warehouse.errors import StoreError
from millrace_pipelines.warehouse.stores.refusals import refusal
from millrace_pipelines.warehouse.stores.store_files import CountingWriter, RangeReader, StoreFiles

FOLDER_MODE = 0o755
SETTINGS = ("HADOOP_", "KRB5")


class HdfsClient:
    """What is asked of a NameNode, whose errors become those of files, or of stores.

    Args:
        address: The cluster's own address, such as `hdfs://namenode:8020`.
        options: Settings of Hadoop, beside those of the files that the environment names.
    """

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self.address = address
        with self.errors("", "read"):
            self._client = Client(address, dict(options))

    def get_file_info(self, path: str) -> FileStatus:
        """Returns the status of a file or folder; raises FileNotFoundError where there is none."""
        with self.errors(path, "read"):
            return self._client.get_file_info(path)

    def list_status(self, path: str) -> list[FileStatus]:
        """Returns what is in a folder; raises FileNotFoundError where there is none."""
        with self.errors(path, "list"):
            return list(self._client.list_status(path))

    def below(self, path: str) -> Iterator[FileStatus]:
        """Yields all that is below a folder; nothing of one that is not there, or that goes meanwhile."""
        try:
            found = self.list_status(path)
        except FileNotFoundError:
            return
        for one in found:
            yield one
            if one.isdir:
                yield from self.below(one.path)

    def read(self, path: str) -> FileReader:
        """Opens a file for reading; raises FileNotFoundError where there is none."""
        with self.errors(path, "read"):
            return self._client.read(path)

    def create(self, path: str, write_options: WriteOptions | None = None) -> FileWriter:
        """Creates a file and opens it for writing."""
        with self.errors(path, "write"):
            return self._client.create(path, write_options)

    def write(self, path: str, content: bytes, *, create_parent: bool = True) -> None:
        """Writes a new file; raises FileExistsError where there is one, FileNotFoundError where the folder lacks."""
        with self.errors(path, "write"), self._client.create(path, WriteOptions(create_parent=create_parent)) as file:
            file.write(content)

    def mkdirs(self, path: str, permission: int = FOLDER_MODE, create_parent: bool = True) -> None:
        """Creates a folder, and those above it, where it is not there."""
        with self.errors(path, "write"):
            self._client.mkdirs(path, permission, create_parent)

    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        """Renames a file or folder; raises FileExistsError where `target` is there and may not be overwritten."""
        with self.errors(target, "write"):
            self._client.rename(source, target, overwrite)

    def delete(self, path: str, recursive: bool = False) -> bool:
        """Deletes a file or folder; returns False where there is none."""
        with self.errors(path, "delete"):
            return self._client.delete(path, recursive)

    @contextmanager
    def errors(self, path: str, tried: str) -> Iterator[None]:
        """Raises the errors of HDFS as those of files, or of stores."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, IsADirectoryError) as error:
            raise type(error)(f"{self.address}{path}: {_sentence(error)}") from error
        except (OSError, RuntimeError, ValueError) as error:
            where = f"{self.address}{path}"
            if (refused := refusal(where, str(error), tried)) is not None:
                raise refused from error
            raise StoreError(f"{where}: tried to {tried} there; HDFS does not do it: {_sentence(error)}") from error


class HdfsFiles(StoreFiles):
    """The files of a cluster as pyarrow's; paths are those of HDFS."""

    def __init__(self, client: HdfsClient) -> None:
        self.client = client

    def get_type_name(self) -> str:
        """Returns a name for this kind of file system."""
        return "hdfs"

    def info(self, path: str) -> pafs.FileInfo:
        """Returns what is at a path: a file, a folder, or nothing."""
        try:
            return _info(self.client.get_file_info(path or "/"))
        except FileNotFoundError:
            return pafs.FileInfo(path, pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Returns the files and folders in a folder, or also those below them."""
        try:
            found = self.client.list_status(selector.base_dir or "/")
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if selector.recursive:
            found = [*found, *(one for each in found if each.isdir for one in self.client.below(each.path))]
        return [_info(one) for one in found]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Opens a file for reading."""
        file = self.client.read(path)

        def fetch(start: int, length: int) -> bytes:
            with self.client.errors(path, "read"):
                return file.read_range(start, length)

        return pa.PythonFile(RangeReader(len(file), fetch), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002  # none is written
        """Opens a file for writing, in folders that are made; it is whole once it is closed."""
        file = self.client.create(path, WriteOptions(overwrite=True))
        return pa.PythonFile(CountingWriter(file, lambda: self.client.errors(path, "write")), mode="w")

    def delete_file(self, path: str) -> None:
        """Removes a file, which may be gone already."""
        self.client.delete(path)

    def create_dir(self, path: str, recursive: bool) -> None:  # pyarrow's signature
        """Creates a folder, and those above it."""
        self.client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        """Removes a folder with all that is in it."""
        self.client.delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Removes all that is in a folder."""
        for one in self.get_file_info_selector(pafs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self.client.delete(one.path, recursive=True)

    def copy_file(self, src: str, dest: str) -> None:
        """Copies a file."""
        with self.open_input_stream(src) as source, self.open_output_stream(dest, None) as target:
            shutil.copyfileobj(source, target)

    def move(self, src: str, dest: str) -> None:
        """Renames a file or folder."""
        self.client.rename(src, dest, overwrite=True)

    def __eq__(self, other: object) -> bool:
        """Returns whether the other one has the same files."""
        return isinstance(other, HdfsFiles) and self.client is other.client

    __hash__ = None  # type: ignore[assignment]  # pyarrow asks for equality only


def client_of(address: str, options: Mapping[str, str]) -> HdfsClient:
    """Returns the client of a cluster, one for each process, options, and settings in the environment."""
    settings = {key: value for key, value in os.environ.items() if key.startswith(SETTINGS)}
    return _client(address, tuple(sorted(options.items())), tuple(sorted(settings.items())))


@cache
def _client(
    address: str,
    options: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],  # noqa: ARG001  # the client reads them when it is made
) -> HdfsClient:
    return HdfsClient(address, dict(options))


def _sentence(error: Exception) -> str:
    """Returns what the NameNode says, without its class and the lines of Java that follow."""
    said = str(error).replace('\\"', "'")
    rpc = re.match(r'RPCError\("[^"]*", "([^"]*)', said)
    return (rpc.group(1) if rpc else said).partition("\\n")[0].partition("\n")[0].strip()


def _info(status: FileStatus) -> pafs.FileInfo:
    if status.isdir:
        return pafs.FileInfo(status.path, pafs.FileType.Directory)
    modified_s = status.modification_time / 1000
    return pafs.FileInfo(status.path, pafs.FileType.File, size=status.length, mtime=modified_s)
