"""Which broker this is: the id that it was told, else that of its folders, else a new one.

Kafka's order: `broker.id`, `meta.properties`, `/brokers/seqid` in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.errors import InvalidConfigError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.meta_properties import read_broker_id


def broker_id(fs: FileSystem, data_dirs: Sequence[str], told: int | None, new: Callable[[], int]) -> int:
    """The id; `new` makes one. InvalidConfigError where a folder belongs to another broker."""
    owners = {directory: owner for directory in data_dirs if (owner := _owner(fs, directory)) is not None}
    for directory, owner in owners.items():
        if told not in (None, owner):
            raise InvalidConfigError(
                f"broker.id={told}: Invalid value, {directory} belongs to broker {owner}; "
                "give that id, or another folder"
            )
    if told is not None:
        return told
    if len(set(owners.values())) > 1:
        said = ", ".join(f"{directory} to broker {owner}" for directory, owner in owners.items())
        raise InvalidConfigError(f"log.dirs: the folders belong to different brokers: {said}")
    return next(iter(owners.values())) if owners else new()


def _owner(fs: FileSystem, directory: str) -> int | None:
    try:
        return read_broker_id(fs, directory)
    except StorageError:  # opening the folder will say so, and take it offline where others can serve
        return None
