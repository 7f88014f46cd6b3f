"""The addresses of tables, and the store behind each; no other module knows their schemes.

/srv/warehouse/flights                                      a folder (`folder`)
s3://bucket/flights                                         a bucket of S3 or a compatible store (`bucket`)
gs://bucket/flights                                         a bucket of Google Cloud Storage
abfss://container@account.dfs.core.windows.net/flights      a container of Azure
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import pyarrow.fs as pafs

from millrace.fs import FileSystem
from millrace_pipelines.warehouse.errors import AddressError
from millrace_pipelines.warehouse.stores.bucket import Bucket
from millrace_pipelines.warehouse.stores.folder import Folder
from millrace_pipelines.warehouse.stores.options import store_options
from millrace_pipelines.warehouse.stores.store import Store


class Scheme(NamedTuple):
    """How the addresses of one kind of store are written, and what Spark calls it."""

    example: str
    spark: str


SCHEMES = {
    "s3": Scheme("s3://bucket/path", "s3a"),
    "gs": Scheme("gs://bucket/path", "gs"),
    "abfss": Scheme("abfss://container@account.dfs.core.windows.net/path", "abfss"),
}
IN_CATALOG = "iceberg:"
SERVED = "a folder, " + " or ".join(scheme.example for scheme in SCHEMES.values())


class Place(NamedTuple):
    """A bucket, or a path in it, below which tables lie; `address` gives what is at a path its address."""

    filesystem: pafs.FileSystem
    root: str
    address: Callable[[str], str]


def store_at(location: str, disk: FileSystem) -> Store:
    """Returns the files of the table at a location; raises AddressError where no store can be meant."""
    address = urlsplit(location)
    if location.startswith(IN_CATALOG):
        raise AddressError(f"{location}: this is done with a table's folder or bucket, and only its catalog knows that")
    if _is_path(location, address):
        path = os.path.abspath(location)
        if unquote(path) != path:
            raise AddressError(
                f"{location}: Delta Lake would take this for {unquote(path)}; give the folder another name"
            )
        return Folder(path, disk)
    if not address.path.strip("/"):
        raise AddressError(f"{location}: a table is {SERVED}")
    return _bucket(location, address)


def bucket_at(location: str) -> Place | None:
    """Returns a bucket, or a path in it; None for a folder of this machine.

    Raises:
        AddressError: A kind of address that is not served.
    """
    address = urlsplit(location)
    if location.startswith(IN_CATALOG):
        raise AddressError(f"{location}: tables are looked for in a folder or a bucket, not in a catalog")
    if _is_path(location, address):
        return None
    bucket = _bucket(location, address)
    name = _name(address)
    return Place(bucket.filesystem, bucket.root.rstrip("/"), lambda path: _root(address) + path.removeprefix(name))


def spark_address(location: str, path: str) -> str:
    """Returns the address by which Spark reads a path in the file system of the bucket with a table."""
    address = urlsplit(location)
    return f"{SCHEMES[address.scheme].spark}://{address.netloc}{path.removeprefix(_name(address))}"


def _bucket(location: str, address: SplitResult) -> Bucket:
    if address.scheme not in SCHEMES or not _name(address) or (address.scheme == "abfss") != ("@" in address.netloc):
        raise AddressError(f"{location}: tables lie in {SERVED}")
    return Bucket(_root(address), _name(address), address.path.strip("/"), store_options().of(location))


def _root(address: SplitResult) -> str:
    return f"{address.scheme}://{address.netloc}"


def _name(address: SplitResult) -> str:
    """Returns the name of a bucket, or of a container of Azure, which stands before its account."""
    return address.netloc.partition("@")[0]


def _is_path(location: str, address: SplitResult) -> bool:
    return len(address.scheme) < 2 or "://" not in location
