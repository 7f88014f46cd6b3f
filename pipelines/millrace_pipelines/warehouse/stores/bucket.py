"""A table in a bucket of S3, with conditional put: an object is durable once its upload ends.

Both pyarrow and delta-rs take keys, region and endpoint from the environment of each process, driver and workers alike:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.stores.store import FileIdentity, Store

S3 = "s3"


class Bucket(Store):
    """The files of a table in a bucket; `root` is the bucket's name and the path in it."""

    is_local = False

    def __init__(self, root: str) -> None:
        super().__init__(f"{S3}://{root}", s3_filesystem(), root, _delta_options())

    def make(self) -> None:
        """Does nothing: a bucket has no folders."""

    def output(self, name: str) -> AbstractContextManager[pa.NativeFile]:
        """Opens a new object for writing; it is there when the context ends."""
        return self._output(name)

    def sync(self, name: str) -> None:
        """Does nothing: an object that is there is durable."""

    def sync_made(self) -> None:
        """Does nothing: a bucket has no folders."""

    def sync_commit(self, version: int) -> None:
        """Does nothing: a commit that is there is durable."""

    def identity(self, name: str) -> FileIdentity:  # noqa: ARG002  # objects have no inodes
        """Returns the identity of an object: its table's location."""
        return FileIdentity(self.location, None)

    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small object."""
        with self._output(name) as stream:
            stream.write(content(self.identity(name)))

    def create(self, name: str, content: bytes) -> None:  # noqa: ARG002  # it is always refused
        """Raises WarehouseError: nothing is created so in a bucket."""
        raise WarehouseError(f"{self.location}/{name} can't be made in a bucket")

    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes objects, which may be gone already."""
        for name in names:
            if self.size_bytes(name) is not None:
                self.remove(name)


def s3_filesystem() -> pafs.FileSystem:
    """Returns pyarrow's client of S3, with region and endpoint of the environment."""
    return pafs.S3FileSystem(
        region=os.environ.get("AWS_REGION"), endpoint_override=os.environ.get("AWS_ENDPOINT_URL") or None
    )


def _delta_options() -> dict[str, str]:
    """Returns options for delta-rs: a commit fails if its object exists; plain HTTP only for an http:// endpoint."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return {"conditional_put": "etag"} | ({"allow_http": "true"} if endpoint.startswith("http://") else {})
