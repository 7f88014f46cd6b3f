"""The addresses of tables, and the store behind each; no other module knows their schemes.

/srv/warehouse/flights        a folder (`folder`)
s3://bucket/flights           an object store with conditional put (`bucket`)
"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, unquote, urlsplit

import pyarrow.fs as pafs

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.stores.bucket import S3, Bucket, s3_filesystem
from millrace_pipelines.warehouse.stores.folder import Folder
from millrace_pipelines.warehouse.stores.store import Store


def store_at(location: str, disk: FileSystem) -> Store:
    """Returns the files of the table at a location; raises WarehouseError for an address that is no folder or s3://."""
    address = urlsplit(location)
    if _is_path(location, address):
        path = os.path.abspath(location)
        if unquote(path) != path:
            raise WarehouseError(
                f"{location}: Delta Lake would take this for {unquote(path)}; give the folder another name"
            )
        return Folder(path, disk)
    if address.scheme != S3 or not address.netloc or not address.path.strip("/"):
        raise WarehouseError(f"{location}: a table is a folder, or s3://bucket/path")
    return Bucket(f"{address.netloc}{address.path}".rstrip("/"))


def bucket_at(location: str) -> tuple[pafs.FileSystem, str] | None:
    """Returns the file system of a bucket and the path in it; None for a folder of this machine.

    Raises:
        WarehouseError: A kind of address that is not served.
    """
    address = urlsplit(location)
    if _is_path(location, address):
        return None
    if address.scheme != S3 or not address.netloc:
        raise WarehouseError(f"{location}: tables are in a folder, or in s3://bucket or below")
    return s3_filesystem(), f"{address.netloc}{address.path}".rstrip("/")


def _is_path(location: str, address: SplitResult) -> bool:
    return len(address.scheme) < 2 or "://" not in location
