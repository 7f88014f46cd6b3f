"""What the log says of the data files, as their add actions have it: delta-rs shows no statistic of its own."""

from __future__ import annotations

import json
from urllib.parse import unquote

from millrace_pipelines.warehouse.delta.data_file import DIGEST
from millrace_pipelines.warehouse.delta.log_actions import actions_of
from millrace_pipelines.warehouse.delta.snapshot import Snapshot


def digests_of(table: Snapshot) -> dict[str, str]:
    """Returns the digests of the version's files by their names, of those that have one."""
    names = set(table.file_names())
    adds = actions_of(table, "add", ("path", "stats"))
    added = {unquote(str(add["path"])): json.loads(add.get("stats") or "{}").get(DIGEST) for add in adds}
    return {name: digest for name, digest in added.items() if name in names and isinstance(digest, str)}
