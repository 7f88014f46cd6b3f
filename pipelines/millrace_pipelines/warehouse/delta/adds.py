"""What the log says of the data files, as their add actions have it: digests, and which rows are deleted.

delta-rs shows no statistic of its own, and of a deletion vector the rows alone, not its descriptor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple
from urllib.parse import unquote

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.delta.data_file import DIGEST
from millrace_pipelines.warehouse.delta.deletion_vector import Descriptor, descriptor_of
from millrace_pipelines.warehouse.delta.log_actions import actions_of
from millrace_pipelines.warehouse.delta.snapshot import Snapshot


class LoggedFile(NamedTuple):
    """A data file as the log names it: the path, encoded, and the deletion vector, None where no row is deleted."""

    path: str
    vector: Descriptor | None


def digests_of(table: Snapshot) -> dict[str, str]:
    """Returns the digests of the version's files by their names, of those that have one."""
    names = set(table.file_names())
    adds = actions_of(table, "add", ("path", "stats"))
    added = {unquote(str(add["path"])): json.loads(add.get("stats") or "{}").get(DIGEST) for add in adds}
    return {name: digest for name, digest in added.items() if name in names and isinstance(digest, str)}


def logged_files(table: Snapshot, names: AbstractSet[str]) -> Mapping[str, LoggedFile]:
    """Returns how the log names some of the version's files, by their names.

    A path may be added again with another vector: the newest add action is the one that counts.

    Raises:
        WarehouseError: The log has no add action of one of them, or none with the vector by which delta-rs reads it.
    """
    found: dict[str, LoggedFile] = {}
    for add in actions_of(table, "add", ("path", "deletionVector")):
        path = str(add["path"])
        if (name := unquote(path)) in names:
            found[name] = LoggedFile(path, descriptor_of(add))
    kept = table.kept_rows()
    for name in sorted(names):
        deleted = int((~kept[name]).sum()) if name in kept else 0
        logged = found.get(name)
        if logged is None or (logged.vector or {}).get("cardinality", 0) != deleted:
            raise WarehouseError(f"{table.location}: the log does not say which rows of {name} are deleted")
    return found
