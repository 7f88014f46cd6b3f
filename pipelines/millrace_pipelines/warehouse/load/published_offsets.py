"""The table's offsets as those of a consumer group, for tools that show how far groups lag.

The table holds the truth: the group's offsets are never read back, and an error is reported instead of raised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.errors import MillraceError
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry

ID_LETTERS = 8


def group_name(table: Table) -> str:
    """Returns a name that people recognize, with a part of the table's id so that no two tables share it."""
    return f"millrace-{os.path.basename(table.location.rstrip('/'))}-{table.id[:ID_LETTERS]}"


def commit_group(source: TopicSource, group: str, entries: Mapping[int, LedgerEntry]) -> str | None:
    """Commits the next offsets under the group's name; returns why that failed, or None."""
    offsets = {(source.topic, partition): GroupOffset(entry.next_offset, "") for partition, entry in entries.items()}
    try:
        with Cluster(source.bootstrap, security=source.security.read()) as cluster:
            Groups(cluster).commit(group, offsets)
    except MillraceError as error:
        return str(error)
    return None
