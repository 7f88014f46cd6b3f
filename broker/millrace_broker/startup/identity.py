"""Which broker this is, by its id, of which cluster, and where it tells clients to connect.

The id is the one that is given, else that of the data directories, else a new one. Kafka's order is the same:
`broker.id`, `meta.properties`, `/brokers/seqid` in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from millrace.addresses import Address, Endpoint
from millrace.errors import InvalidConfigError, StorageError
from millrace.fs import FileSystem
from millrace_broker.cluster.metadata_image import BrokerInfo
from millrace_broker.cluster.store import ClusterOfFolder, NamedCluster
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage.data_dirs.data_dir import check_unlocked
from millrace_broker.storage.data_dirs.meta_properties import read_broker_id, read_cluster_id


def identified(options: BrokerOptions, fs: FileSystem, new_id: Callable[[], int]) -> BrokerOptions:
    """Returns the options with the broker's id: the given one, the data directories', or a new one of `new_id`.

    Raises InvalidConfigError where a data directory belongs to another broker; the message begins with where
    `broker.id` is given.
    """
    try:
        number = broker_id(fs, options.data_dirs, options.broker_id, new_id)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{options.broker_id_place}{error}") from None
    return replace(options, broker_id=number, properties={**options.properties, "broker.id": str(number)})


def named_cluster(options: BrokerOptions, fs: FileSystem) -> NamedCluster:
    """Returns which id the cluster gets if the metadata store is empty: `--cluster-id`, or the data directories'."""
    return NamedCluster(options.cluster_id, partial(_cluster_of_folders, fs, options.data_dirs))


def _cluster_of_folders(fs: FileSystem, data_dirs: Sequence[str]) -> ClusterOfFolder | None:
    for directory in data_dirs:
        cluster_id = None
        with suppress(StorageError):  # opening the folder will say so
            cluster_id = read_cluster_id(fs, directory)
        if cluster_id is not None:
            check_unlocked(fs, directory)
            return ClusterOfFolder(directory, cluster_id)
    return None


def registration(options: BrokerOptions, bound: Mapping[str, Address]) -> BrokerInfo:
    """Returns the entry of this broker in the cluster; `bound` has the addresses that its listeners got, by name."""
    assert options.broker_id is not None, "the broker is identified"
    endpoints = [
        Endpoint(one.name, one.protocol.name, *(one.advertised or bound[one.name]))
        for one in options.listeners
        if one.is_told
    ]
    return BrokerInfo.of(options.broker_id, endpoints, options.broker.broker_rack or None)


def broker_id(fs: FileSystem, data_dirs: Sequence[str], given: int | None, new_id: Callable[[], int]) -> int:
    """Returns the given id, else the data directories', else a new one; raises InvalidConfigError if they differ."""
    owners = {directory: owner for directory in data_dirs if (owner := _owner(fs, directory)) is not None}
    for directory, owner in owners.items():
        if given not in (None, owner):
            raise InvalidConfigError(
                f"broker.id={given}: Invalid value, {directory} belongs to broker {owner}; "
                "give that id, or another folder"
            )
    if given is not None:
        return given
    if len(set(owners.values())) > 1:
        listed = ", ".join(f"{directory} to broker {owner}" for directory, owner in owners.items())
        raise InvalidConfigError(f"log.dirs: the folders belong to different brokers: {listed}")
    return next(iter(owners.values())) if owners else new_id()


def _owner(fs: FileSystem, directory: str) -> int | None:
    try:
        return read_broker_id(fs, directory)
    except StorageError:  # opening the folder will say so, and take it offline where others can serve
        return None
