"""The offsets that a table holds, kept in the table's own log as application transactions (spec H2).

    app id                                    version
    millrace/<topic id>/<partition>           next offset: the first one that the table doesn't have
    millrace/<topic id>/<partition>/start     the offset at which the partition's first load began

Every partition that the topic has when something is committed gets both, even where it has no record yet,
so the ledger's partitions are 0 … n - 1 without a hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.table import Table

TOPIC_PROPERTY = "millrace.topic"
TOPIC_ID_PROPERTY = "millrace.topicId"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The offsets of one partition that the table has: start_offset up to, not including, next_offset."""

    start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a table has of its topic, by partition."""

    topic: str
    topic_id: str
    partitions: Mapping[int, LedgerEntry]

    def next_offset(self, partition: int) -> int | None:
        """The first offset that the table doesn't have; None before the partition's first load."""
        entry = self.partitions.get(partition)
        return None if entry is None else entry.next_offset


def next_app_id(topic_id: str, partition: int) -> str:
    """The application id under which a partition's next offset is kept."""
    return f"millrace/{topic_id}/{partition}"


def start_app_id(topic_id: str, partition: int) -> str:
    """The application id under which a partition's first offset is kept."""
    return f"millrace/{topic_id}/{partition}/start"


def ledger_of(table: Table) -> Ledger:
    """The ledger in this version of a table; TableNotFoundError for a table that no load made."""
    try:
        topic, topic_id = table.configuration[TOPIC_PROPERTY], table.configuration[TOPIC_ID_PROPERTY]
    except KeyError:
        raise TableNotFoundError(f"{table.directory}: a Delta table, but not one that Millrace loads") from None
    partitions: dict[int, LedgerEntry] = {}
    for partition in count():
        next_offset = table.transaction_version(next_app_id(topic_id, partition))
        start_offset = table.transaction_version(start_app_id(topic_id, partition))
        if next_offset is None or start_offset is None:
            break
        partitions[partition] = LedgerEntry(start_offset, next_offset)
    return Ledger(topic, topic_id, partitions)


def read_ledger(table_dir: str) -> Ledger:
    """The newest ledger of the table in a directory; TableNotFoundError where there is none."""
    return ledger_of(Table.load(table_dir, OsFileSystem()))


def swap(ledger: Ledger, following: Mapping[int, LedgerEntry]) -> tuple[dict[str, int | None], dict[str, int]]:
    """(versions that a commit builds on, versions that it sets) for moving partitions to their `following` entries."""
    expected: dict[str, int | None] = {}
    transactions: dict[str, int] = {}
    for partition, entry in following.items():
        app_id = next_app_id(ledger.topic_id, partition)
        expected[app_id] = ledger.next_offset(partition)
        transactions[app_id] = entry.next_offset
        if partition not in ledger.partitions:
            transactions[start_app_id(ledger.topic_id, partition)] = entry.start_offset
    return expected, transactions
