"""The steps of a move to another data folder, and which of the two copies counts after a crash (KIP-113).

    step                                                        what a crash behind it leaves
    1  copy everything to B/<tp>.<hex>-future, synced           the log in A; the next start drops the copy, and the
                                                                move starts again
    2  write partition.metadata there: the copy is whole        the same
    3  write B's checkpoints, with the log's offsets            the same
    4  rename A/<tp> -> A/<tp>.<hex>-delete                     the log in A, or else the whole copy
    5  sync A: the decision                                     the copy: the start does 6
    6  rename B/<tp>.<hex>-future -> B/<tp>                     the log in B
    7  sync B

Between 4 and 6 no folder has the partition's name, and nothing is appended. So one log counts at any time: the one that
has the name, and where none has, the whole copy. Kafka renames in the other order; a crash in between leaves both under
the name, and its next start refuses that.

A copy is dropped by renaming it to `-delete`, synced, so that no half-removed copy is taken for a whole one. A copy is
left as it is where a folder that is offline and can't be listed may hold the log.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence

from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.failures import storage_error, storage_errors
from millrace_broker.storage.filenames import PARTITION_METADATA, TopicPartition, deleted_dir_name

logger = logging.getLogger(__name__)


def swap(fs: FileSystem, topic_partition: TopicPartition, source: DataDir, target: DataDir, copy: str) -> str:
    """Does steps 4 to 7 and returns the path that the old folder has now.

    After StorageError the log is where it was: in use, or offline with its folder if what its disk holds is unknown.
    Where only step 7 fails, the target is offline, with the log in it.
    """
    current = os.path.join(source.path, str(topic_partition))
    deleted = os.path.join(source.path, deleted_dir_name(topic_partition, uuid.uuid4()))
    with storage_errors(current):
        fs.rename(current, deleted)
    with source.health.guard(source.path):
        fs.fsync_dir(source.path)
    try:
        fs.rename(copy, os.path.join(target.path, str(topic_partition)))
    except OSError as error:
        target.health.fail(f"{copy}: {error.strerror or error}")
        with source.health.guard(source.path):
            fs.rename(deleted, current)
            fs.fsync_dir(source.path)
        raise storage_error(copy, error) from error
    try:
        fs.fsync_dir(target.path)
    except OSError as error:
        target.health.fail(f"{target.path}: {error.strerror or error}")
    return deleted


def drop_copy(fs: FileSystem, topic_partition: TopicPartition, data_dir: DataDir, copy: str) -> str:
    """Renames a copy to `-delete` and returns that path, to be removed. A StorageError takes the folder offline."""
    deleted = os.path.join(data_dir.path, deleted_dir_name(topic_partition, uuid.uuid4()))
    with data_dir.health.guard(copy):
        fs.rename(copy, deleted)  # or else the next start drops it
    return deleted


def settle_moves(fs: FileSystem, data_dirs: Sequence[DataDir]) -> None:
    """Puts whole copies of logs that are nowhere else in place and drops the others, before logs are opened.

    `interrupted_moves` gets the partitions of those that are dropped, so that their moves can start again. A folder in
    which that fails goes offline.
    """
    for data_dir in data_dirs:
        if data_dir.is_online:
            try:
                for topic_partition, path in list(data_dir.copies()):
                    _settle(fs, data_dirs, data_dir, topic_partition, path)
            except StorageError as error:
                data_dir.take_offline(str(error))


def _settle(
    fs: FileSystem, data_dirs: Sequence[DataDir], data_dir: DataDir, topic_partition: TopicPartition, copy: str
) -> None:
    if any(topic_partition in dict(each.partition_dirs()) for each in data_dirs if each.is_online):
        drop_copy(fs, topic_partition, data_dir, copy)
        data_dir.interrupted_moves.append(topic_partition)
    elif any(each.may_hold_unopened(topic_partition) for each in data_dirs):
        logger.warning("%s is left as it is: the log may be in a data folder that is offline", copy)
    elif fs.exists(os.path.join(copy, PARTITION_METADATA)):
        with data_dir.health.guard(copy):
            fs.rename(copy, os.path.join(data_dir.path, str(topic_partition)))  # or else the next start does
        logger.info("%s: the move of this log here was interrupted, and is now complete", copy)
    else:
        drop_copy(fs, topic_partition, data_dir, copy)
