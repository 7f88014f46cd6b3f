"""A table in a bucket of S3 or a compatible store, of Google Cloud Storage, or of Azure.

An object is durable once its upload ends, and it is written whole or not at all. All that keeps writers apart rests on
two promises of the store, which are tried once by each process that makes a table or holds a lease:

    create      an object is written only where there is none: of two, the second fails
    update      an object is written only over the version that was read

A store that does not keep them is refused, for in it a commit would overwrite another one without a word. So is one in
which others commit by a lock in DynamoDB, as Delta Lake's S3DynamoDBLogStore does: they put commits without a
condition, and delta-rs has that lock no longer.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import Any, NamedTuple, cast

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from millrace_pipelines.warehouse.errors import AddressError, UnsafeStoreError
from millrace_pipelines.warehouse.stores.bucket_files import BucketFiles, ObjectFacts, store_errors
from millrace_pipelines.warehouse.stores.option_names import CLIENT, NO_LOCK
from millrace_pipelines.warehouse.stores.options import Options
from millrace_pipelines.warehouse.stores.store import LOG_DIRECTORY, FileIdentity, Store

CHAINS = ("AWS_", "AZURE_", "GOOGLE_")
LOCK_VARIABLE = "AWS_S3_LOCKING_PROVIDER"
TRIALS = "_running/trial-"
TRIED: set[tuple[str, ...]] = set()
"""Holds each bucket, with its options, that has refused a second conditional write when this process tried it."""


class Known(NamedTuple):
    """A small object as it was read: its content, and the facts by which it is updated."""

    content: bytes
    facts: ObjectFacts


class Bucket(Store):
    """The files of a table in a bucket.

    Args:
        address: The bucket's own address, such as `s3://lake`.
        name: The bucket's name, with which paths in the file system begin.
        prefix: The table's path in the bucket.
        options: The options of delta-rs and obstore, beside what they find in the environment.
    """

    is_local = False

    def __init__(self, address: str, name: str, prefix: str, options: Options) -> None:
        self._files = BucketFiles(address, name, opened(address, tuple(sorted(options.items())), _environment()))
        self._prefix = prefix
        self._trial = (address, *_environment_of(options))
        filesystem = pafs.PyFileSystem(self._files)
        super().__init__(f"{address}/{prefix}", filesystem, f"{name}/{prefix}", delta_options(address, options))

    def make(self) -> None:
        """Tries the store's promises; a bucket has no folders."""
        self.check_promises()

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

    def size_bytes(self, name: str) -> int | None:
        """Returns the size of an object; None where there is none."""
        facts = self._files.facts(self._key(name))
        return None if facts is None else facts.size_bytes

    def read(self, name: str) -> bytes | None:
        """Returns the content of a small object; None where there is none."""
        known = self.fetch(name)
        return None if known is None else known.content

    def names(self) -> list[str]:
        """Returns the names of all objects outside of the table's log, sorted."""
        return [name for name in self.below("") if not name.startswith(f"{LOG_DIRECTORY}/")]

    def replace(self, name: str, content: Callable[[FileIdentity], bytes]) -> None:
        """Replaces a small object."""
        self._put(name, content(self.identity(name)), "overwrite")

    def create(self, name: str, content: bytes) -> None:
        """Creates a small object; raises FileExistsError where there is one with another content.

        The same content is this one's own, of an attempt whose answer was lost.
        """
        try:
            self._put(name, content, "create")
        except FileExistsError:
            if self.read(name) != content:
                raise

    def update(self, name: str, content: bytes, facts: ObjectFacts) -> None:
        """Replaces a small object as it was read; raises FileExistsError or FileNotFoundError where it has changed."""
        self._put(name, content, _over(facts))

    def fetch(self, name: str) -> Known | None:
        """Returns a small object with its facts; None where there is none."""
        try:
            with store_errors(f"{self.location}/{name}"):
                found = obstore.get(self._files.objects, self._key(name))
                meta = cast("dict[str, Any]", found.meta)
                facts = ObjectFacts(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"], meta["version"])
                return Known(bytes(found.bytes()), facts)
        except FileNotFoundError:
            return None

    def facts_below(self, folder: str) -> dict[str, ObjectFacts]:
        """Returns the facts of all objects in a folder, by their names in the table."""
        prefix = self._key(folder)
        return {one.key.removeprefix(f"{self._prefix}/"): one for one in self._files.below(prefix)}

    def below(self, folder: str) -> list[str]:
        """Returns the names of all objects in a folder, sorted."""
        return sorted(self.facts_below(folder))

    def remove(self, name: str) -> None:
        """Removes an object, which may be gone already."""
        with store_errors(f"{self.location}/{name}"), suppress(FileNotFoundError):
            obstore.delete(self._files.objects, self._key(name))

    def remove_durably(self, names: Iterable[str]) -> None:
        """Removes objects, which may be gone already."""
        for name in names:
            self.remove(name)

    def check_promises(self) -> None:
        """Tries whether the store keeps its promises, once in each process.

        Raises:
            UnsafeStoreError: It does not, or others commit by a lock that is not taken here.
        """
        if self.location.startswith("s3:") and os.environ.get(LOCK_VARIABLE):
            raise UnsafeStoreError(f"{self.location}: {LOCK_VARIABLE} is set, but {NO_LOCK}")
        if self._trial in TRIED:
            return
        name = f"{TRIALS}{uuid.uuid4().hex}"
        self._put(name, b"1", "create")
        try:
            before = self.fetch(name)
            if before is None or self._is_written(name, b"2", "create"):
                raise UnsafeStoreError(self._refusal("create"))
            self.update(name, b"3", before.facts)
            if self._is_written(name, b"4", _over(before.facts)):
                raise UnsafeStoreError(self._refusal("update"))
        finally:
            self.remove(name)
        TRIED.add(self._trial)

    def _is_written(self, name: str, content: bytes, mode: object) -> bool:
        try:
            self._put(name, content, mode)
        except FileExistsError:
            return False
        return True

    def _refusal(self, promise: str) -> str:
        return (
            f"{self.location}: the store does not honour a conditional {promise}, so that two writers could overwrite "
            "one another's commit; use a store, or a release of it, that honours If-None-Match and If-Match"
        )

    def _put(self, name: str, content: bytes, mode: Any) -> None:
        with store_errors(f"{self.location}/{name}"):
            obstore.put(self._files.objects, self._key(name), content, mode=mode, use_multipart=False)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".rstrip("/")


def _over(facts: ObjectFacts) -> dict[str, str]:
    """Returns the condition that an object is still as it was read."""
    said = {"e_tag": facts.tag, "version": facts.version}
    return {key: value for key, value in said.items() if value is not None}


@cache
def opened(address: str, options: tuple[tuple[str, str], ...], environment: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Returns the client of a bucket, one for each process, options and `environment`.

    Raises:
        AddressError: The options are not those of such a store.
    """
    given = dict(options)
    client: dict[str, Any] = {key: value for key, value in given.items() if key in CLIENT}
    config: Any = {key: value for key, value in given.items() if key not in CLIENT}
    if allows_http(given, dict(environment)):
        client["allow_http"] = True
    try:
        return from_url(address, config=config, client_options=cast("Any", client))
    except (BaseError, ValueError) as error:
        raise AddressError(f"{address}: its options are not those of such a store: {error}") from error


def delta_options(address: str, options: Options) -> dict[str, str]:
    """Returns options for delta-rs: those given; a commit of S3 fails if its object exists; HTTP where it is asked for.

    Azure and Google Cloud Storage need no option for that.
    """
    conditional = {"conditional_put": "etag"} if address.startswith("s3:") else {}
    http = {"allow_http": "true"} if allows_http(options, dict(_environment())) else {}
    return conditional | http | dict(options)


def allows_http(options: Options, environment: Mapping[str, str]) -> bool:
    """Returns whether plain HTTP is asked for: by the option, or by an endpoint of http://."""
    if "allow_http" in options:
        return options["allow_http"].lower() == "true"
    return any(value.startswith("http://") for value in (*options.values(), *environment.values()))


def _environment() -> tuple[tuple[str, str], ...]:
    """Returns the variables in which clouds keep credentials and endpoints."""
    return tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith(CHAINS)))


def _environment_of(options: Options) -> tuple[str, ...]:
    """Returns the addresses in environment and options, by which two stores of one name are told apart."""
    values = (*options.values(), *(value for _, value in _environment()))
    return tuple(sorted(value for value in values if "://" in value))
