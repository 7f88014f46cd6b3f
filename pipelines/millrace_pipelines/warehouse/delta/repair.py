"""What a power cut may leave at the end of a table's log, and how it is removed.

delta-rs writes a commit under another name and links it into its place without a sync; the sync comes after, here. A
power cut between the two may leave the newest commit, or a checkpoint, with its name and without its bytes:

    empty                    reads as a commit of nothing: the load is not in the table, the next one goes on
    torn, or full of zeros   the table can't be read; no load has been told that it was committed: it is removed
    torn checkpoint          the table can't be read from it; every commit is still there: it is removed

Nothing was built on such a commit, for every process that loads a table to write to it syncs its newest commit first.
"""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.fs import FileSystem, read_file
from millrace_pipelines.warehouse.delta.store import LOG_DIRECTORY

LAST_CHECKPOINT = "_last_checkpoint"
COMMIT_SUFFIX = ".json"
CHECKPOINT_SUFFIX = ".checkpoint.parquet"


def remove_torn_end(directory: str, fs: FileSystem) -> list[str]:
    """Removes the newest commit and the newest checkpoint of a local table if they are torn; returns their names."""
    log = os.path.join(directory, LOG_DIRECTORY)
    names = fs.listdir(log) if fs.exists(log) else []
    commits = [name for name in names if name.endswith(COMMIT_SUFFIX)]
    checkpoints = [name for name in names if name.endswith(CHECKPOINT_SUFFIX)]
    torn = [name for name in commits[-1:] if _is_torn_commit(read_file(fs, os.path.join(log, name)))]
    if checkpoints and _is_torn_checkpoint(os.path.join(log, checkpoints[-1])):
        torn += [checkpoints[-1], *(name for name in names if name == LAST_CHECKPOINT)]
    elif LAST_CHECKPOINT in names and not _is_json(read_file(fs, os.path.join(log, LAST_CHECKPOINT))):
        torn.append(LAST_CHECKPOINT)
    for name in torn:
        fs.unlink(os.path.join(log, name))
    if torn:
        fs.fsync_dir(log)
    return torn


def _is_torn_commit(content: bytes) -> bool:
    return not all(_is_json(line) for line in content.splitlines() if line)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _is_torn_checkpoint(path: str) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError):
        return True
    return False
