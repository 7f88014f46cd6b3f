"""Which broker this is: the id that it was told, else that of its folders, else a new one.

Kafka's order (`broker.id`, `meta.properties`, `/brokers/seqid` in ZooKeeper). A folder with another id than the broker
was told is refused when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.errors import InvalidConfigError
from millrace.fs import FileSystem
from millrace_broker.storage.meta_properties import read_broker_id


def broker_id(fs: FileSystem, data_dirs: Sequence[str], told: int | None, new: Callable[[], int]) -> int:
    """The id; `new` makes one. InvalidConfigError where folders belong to different brokers, StorageError."""
    if told is not None:
        return told
    owners = {directory: owner for directory in data_dirs if (owner := read_broker_id(fs, directory)) is not None}
    if len(set(owners.values())) > 1:
        said = ", ".join(f"{directory} to broker {owner}" for directory, owner in owners.items())
        raise InvalidConfigError(f"log.dirs: the folders belong to different brokers: {said}")
    return next(iter(owners.values())) if owners else new()
