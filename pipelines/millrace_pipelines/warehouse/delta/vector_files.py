"""Which files vacuum has to keep because of deletion vectors.

    deletion_vector_….bin    that a file of the newest version has, or a file that was removed a short while ago
    data file                that was removed a short while ago, though it has been removed before with another vector

delta-rs knows data files alone, and takes the oldest removal of a path for its last.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from millrace_pipelines.warehouse.delta.adds import logged_files
from millrace_pipelines.warehouse.delta.deletion_vector import Descriptor, descriptor_of, vector_file
from millrace_pipelines.warehouse.delta.log_actions import actions_of
from millrace_pipelines.warehouse.delta.snapshot import DELETION_VECTORS, Snapshot


def files_of_versions(table: Snapshot, since_ms: int) -> set[str]:
    """Returns the names of files that the versions since a time need, but for the data files of the newest one.

    Args:
        table: The newest version.
        since_ms: The time from which on readers may still have a version.
    """
    if DELETION_VECTORS not in table.facts().reader_features:
        return set()
    return {*_of_this_version(table), *_of_removed(table, since_ms)}


def _of_this_version(table: Snapshot) -> Iterator[str]:
    for file in logged_files(table, table.kept_rows().keys()).values():
        yield from _name(file.vector, table)


def _of_removed(table: Snapshot, since_ms: int) -> Iterator[str]:
    for remove in actions_of(table, "remove", ("path", "deletionTimestamp", "deletionVector")):
        if (remove.get("deletionTimestamp") or 0) > since_ms:
            yield unquote(str(remove["path"]))
            yield from _name(descriptor_of(remove), table)


def _name(vector: Descriptor | None, table: Snapshot) -> Iterator[str]:
    name = None if vector is None else vector_file(vector, table.location)
    if name is not None:
        yield name
