"""The folders of partitions: made whole, durably, or not at all, and removed.

    NAME-N/00000000000000000000.log     empty
    NAME-N/partition.metadata           the topic's id (`meta_properties`)

A crash while folders are made may leave any of them without its id, or with none of its files.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Mapping

from millrace.fs import FileSystem, file_size, write_files_durably
from millrace_broker.storage.data_dirs.meta_properties import partition_metadata, write_topic_id
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import LOG_SUFFIX, PARTITION_METADATA, segment_file_name

logger = logging.getLogger(__name__)

FEW = 16  # up to that many files are synced one by one, more by a sync of the whole file system
FIRST_SEGMENT = segment_file_name(0, LOG_SUFFIX)


def make_partition_dirs(fs: FileSystem, data_dir: str, topic_ids: Mapping[str, uuid.UUID]) -> None:
    """Makes partitions' folders in a data folder, synced; `topic_ids` has each folder's path and its topic's id.

    A new folder gets the empty file of its first segment: were a later segment's the first name to reach the disk, a
    log found after a crash would begin there. On StorageError a folder that was made may lack its id.
    """
    for directory in topic_ids:
        with storage_errors(directory):
            fs.mkdir(directory)
            if not fs.listdir(directory):
                fs.close(fs.open(os.path.join(directory, FIRST_SEGMENT), create=True))
    with storage_errors(data_dir):
        if len(topic_ids) > FEW:
            paths = {os.path.join(directory, PARTITION_METADATA): topic_id for directory, topic_id in topic_ids.items()}
            write_files_durably(fs, data_dir, {path: partition_metadata(topic_id) for path, topic_id in paths.items()})
            return
        for directory, topic_id in topic_ids.items():
            write_topic_id(fs, directory, topic_id)
        fs.fsync_dir(data_dir)


def unmake_partition_dirs(fs: FileSystem, data_dir: str, directories: Iterable[str]) -> None:
    """Removes folders of which no log could be made, but for those that hold more than an empty first segment.

    The next start would take them for logs, even of topics that were deleted meanwhile; so the removal is synced. What
    can't be removed stays, and the broker's log tells it.
    """
    for directory in directories:
        try:
            if fs.exists(directory) and _is_new(fs, directory):
                remove_tree(fs, directory)
        except OSError as error:
            logger.warning("%s: no log could be made, and the folder can't be removed: %s", directory, error)
    try:
        fs.fsync_dir(data_dir)
    except OSError as error:
        logger.warning("%s: removed folders may be back after a power cut: %s", data_dir, error)


def _is_new(fs: FileSystem, directory: str) -> bool:
    logs = [name for name in fs.listdir(directory) if name.endswith(LOG_SUFFIX)]
    return not logs or (logs == [FIRST_SEGMENT] and file_size(fs, os.path.join(directory, FIRST_SEGMENT)) == 0)


def remove_tree(fs: FileSystem, path: str) -> None:
    """Removes a partition's folder, which holds files only, if it is there. Raises OSError."""
    if not fs.exists(path):
        return
    for name in fs.listdir(path):
        fs.unlink(os.path.join(path, name))
    fs.rmdir(path)
