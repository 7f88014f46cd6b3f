"""`meta.properties` and `partition.metadata`: the owners of data folders and of partitions' folders (Kafka's formats).

    version=0                               version: 0
    broker.id=1                             topic_id: 4hZ3cCVbQg6Ie4GAHZpGkQ
    cluster.id=M0tZ0qZ3Q4Kq2sR1yHn0aw

Both are written once, durably, before anything else in their folder.

No checksum covers them. Ids are random, so those of two topics never agree in half of their characters. One that does
is damaged (`is_damaged_id`): the log belongs to the topic, and keeps its records.
"""

from __future__ import annotations

import binascii
import os
import uuid

import javaproperties

from millrace.config import MAX_INT, whole_number
from millrace.errors import InconsistentClusterIdError, StorageError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace.uuids import decode_id, encode_id
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import META_PROPERTIES, PARTITION_METADATA

RANDOM = 4  # the version of a UUID that was drawn at random, as every topic's is


class DamagedMetadataError(StorageError):
    """A `partition.metadata` file that can be read, but holds no topic id."""


def is_damaged_id(found: uuid.UUID, expected: uuid.UUID) -> bool:
    """Returns whether an id differs from the expected one but agrees in half of its characters: it was damaged."""
    if found == expected or expected.version != RANDOM:
        return False
    agreeing = [one == other for one, other in zip(encode_id(found), encode_id(expected), strict=True)]
    return sum(agreeing) >= len(agreeing) // 2


def claim_data_dir(fs: FileSystem, directory: str, *, cluster_id: str, broker_id: int) -> None:
    """Writes cluster and broker id into a fresh folder's `meta.properties`, or checks those there. Raises StorageError.

    Raises InconsistentClusterIdError where the folder belongs to another cluster or broker.
    """
    path = os.path.join(directory, META_PROPERTIES)
    expected = {"version": "0", "broker.id": str(broker_id), "cluster.id": cluster_id}
    with storage_errors(path):
        if not fs.exists(path):
            content = "".join(f"{name}={value}\n" for name, value in expected.items())
            write_file_durably(fs, path, content.encode())
            return
        found = _parse_properties(path, read_file(fs, path))
    for name in ("cluster.id", "broker.id"):
        if found.get(name) != expected[name]:
            raise InconsistentClusterIdError(
                f"{path}: the folder belongs to {name} {found.get(name)}, this broker has {name} {expected[name]}"
            )


def read_broker_id(fs: FileSystem, directory: str) -> int | None:
    """Returns the broker id in a data folder's `meta.properties`; None where the file or the id is missing."""
    path = os.path.join(directory, META_PROPERTIES)
    with storage_errors(path):
        if not fs.exists(path):
            return None
        found = _parse_properties(path, read_file(fs, path))
    return whole_number(found.get("broker.id", ""), MAX_INT)


def read_cluster_id(fs: FileSystem, directory: str) -> str | None:
    """Returns the cluster's id in a data folder's `meta.properties`; None where the file or the id is missing."""
    path = os.path.join(directory, META_PROPERTIES)
    with storage_errors(path):
        return _parse_properties(path, read_file(fs, path)).get("cluster.id") if fs.exists(path) else None


def read_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """Returns the id of the topic that a partition's folder belongs to; None where none was written.

    Raises StorageError or DamagedMetadataError.
    """
    path = os.path.join(directory, PARTITION_METADATA)
    with storage_errors(path):
        try:
            content = read_file(fs, path).decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise DamagedMetadataError(f"{path}: not UTF-8 text") from None
    fields = dict(line.split(": ", 1) for line in content.splitlines() if ": " in line)
    try:
        return decode_id(fields["topic_id"])
    except (KeyError, ValueError, binascii.Error):
        raise DamagedMetadataError(f"{path}: no valid topic_id in it") from None


def write_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    """Writes the id of the topic that a partition's folder belongs to. Raises StorageError."""
    path = os.path.join(directory, PARTITION_METADATA)
    with storage_errors(path):
        write_file_durably(fs, path, partition_metadata(topic_id))


def partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Returns the content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {encode_id(topic_id)}\n".encode()


def _parse_properties(path: str, content: bytes) -> dict[str, str]:
    try:
        return javaproperties.loads(content.decode())
    except ValueError as error:
        raise StorageError(f"{path}: {error}") from error
