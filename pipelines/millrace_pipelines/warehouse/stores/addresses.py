"""The addresses of tables, and the store behind each; no other module knows their schemes.

/srv/warehouse/flights                                      a folder (`folder`)
s3://bucket/flights                                         a bucket of S3 or a compatible store (`bucket`)
gs://bucket/flights                                         a bucket of Google Cloud Storage
abfss://container@account.dfs.core.windows.net/flights      a container of Azure
hdfs://namenode:8020/flights                                HDFS, by a NameNode or the name of a pair of them (`hdfs`)
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
from millrace_pipelines.warehouse.stores.hdfs import Hdfs
from millrace_pipelines.warehouse.stores.options import Options, store_options
from millrace_pipelines.warehouse.stores.store import Store


class Scheme(NamedTuple):
    """How the addresses of one kind of store are written, what Spark calls it, and how a table in it is opened."""

    example: str
    spark: str
    opens: Callable[[SplitResult, Options], Store]


def _bucket(address: SplitResult, options: Options) -> Store:
    return Bucket(_root(address), _name(address), address.path.strip("/"), options)


def _hdfs(address: SplitResult, options: Options) -> Store:
    return Hdfs(_root(address), "/" + address.path.strip("/"), options)


SCHEMES = {
    "s3": Scheme("s3://bucket/path", "s3a", _bucket),
    "gs": Scheme("gs://bucket/path", "gs", _bucket),
    "abfss": Scheme("abfss://container@account.dfs.core.windows.net/path", "abfss", _bucket),
    "hdfs": Scheme("hdfs://namenode:port/path", "hdfs", _hdfs),
}
IN_CATALOG = "iceberg:"
SERVED = "a folder, " + " or ".join(scheme.example for scheme in SCHEMES.values())


class Place(NamedTuple):
    """A bucket or cluster, or a path in it, below which tables lie; `address` gives what is at a path its address."""

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
    return _opened(location, address)


def bucket_at(location: str) -> Place | None:
    """Returns a bucket, a cluster of HDFS, or a path in one; None for a folder of this machine.

    Raises:
        AddressError: A kind of address that is not served.
    """
    address = urlsplit(location)
    if location.startswith(IN_CATALOG):
        raise AddressError(f"{location}: tables are looked for in a folder or a bucket, not in a catalog")
    if _is_path(location, address):
        return None
    store = _opened(location, address)
    name = _name(address)
    return Place(store.filesystem, store.root.rstrip("/"), lambda path: _root(address) + path.removeprefix(name))


def spark_address(location: str, path: str) -> str:
    """Returns the address by which Spark reads a path in the file system of the bucket with a table."""
    address = urlsplit(location)
    return f"{SCHEMES[address.scheme].spark}://{address.netloc}{path.removeprefix(_name(address))}"


def _opened(location: str, address: SplitResult) -> Store:
    scheme = SCHEMES.get(address.scheme)
    if scheme is None or not address.netloc.partition("@")[0] or (address.scheme == "abfss") != ("@" in address.netloc):
        raise AddressError(f"{location}: tables lie in {SERVED}")
    return scheme.opens(address, store_options().of(location))


def _root(address: SplitResult) -> str:
    return f"{address.scheme}://{address.netloc}"


def _name(address: SplitResult) -> str:
    """Returns what paths in the file system begin with: a bucket's name, or that of a container; nothing in HDFS."""
    return "" if address.scheme == "hdfs" else address.netloc.partition("@")[0]


def _is_path(location: str, address: SplitResult) -> bool:
    return len(address.scheme) < 2 or "://" not in location
