"""The offsets that a table holds, kept in the table's own log as Delta Lake's application transactions.

    app id                                    version
    millrace/<ledger>/<partition>             next offset: the first one that the table doesn't have
    millrace/<ledger>/<partition>/start       the offset at which the partition's first load began
    millrace/<ledger>/<partition>/epoch       leader epoch of the last batch read, -1 where none is known

Every partition that the topic has when something is committed gets the first two, even one without a record, so that
the ledger's partitions are 0 … n - 1 without a gap.

A ledger is named by the topic's id. Where a table goes on with a topic that was recreated, or with a log that was
truncated, it begins another ledger: under the new id, or under `<topic id>.<generation>`. The names of the former ones
are in the table's properties, and what these say of the rows stays true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LedgerError, StaleLedgerError, TableNotFoundError

TOPIC_PROPERTY = "millrace.topic"
TOPIC_ID_PROPERTY = "millrace.topicId"
GENERATION_PROPERTY = "millrace.generation"
FORMER_LEDGERS_PROPERTY = "millrace.formerLedgers"
MAX_PARTITION = "max.partition"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The offsets of one partition that the table has: start_offset up to, not including, next_offset."""

    start_offset: int
    next_offset: int
    leader_epoch: int = field(default=NO_LEADER_EPOCH, compare=False)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a table has of its topic, by partition; `name` is part of the application ids."""

    topic: str
    topic_id: str
    partitions: Mapping[int, LedgerEntry]
    generation: int = 0

    @property
    def name(self) -> str:
        """The topic's id, with the generation behind it from the second on."""
        return ledger_name(self.topic_id, self.generation)

    def next_offset(self, partition: int) -> int | None:
        """Returns the first offset that the table doesn't have; None before the partition's first load."""
        entry = self.partitions.get(partition)
        return None if entry is None else entry.next_offset


def ledger_name(topic_id: str, generation: int) -> str:
    """Returns the name that a ledger has in application ids."""
    return f"{topic_id}.{generation}" if generation else topic_id


def next_app_id(ledger: str, partition: int) -> str:
    """Returns the application id under which a partition's next offset is kept."""
    return f"millrace/{ledger}/{partition}"


def start_app_id(ledger: str, partition: int) -> str:
    """Returns the application id under which a partition's first offset is kept."""
    return f"millrace/{ledger}/{partition}/start"


def epoch_app_id(ledger: str, partition: int) -> str:
    """Returns the application id under which the leader epoch of a partition's last batch is kept."""
    return f"millrace/{ledger}/{partition}/epoch"


def ledger_of(table: Table) -> Ledger:
    """Returns the ledger in this version of a table; raises TableNotFoundError for a table that no load created."""
    try:
        topic, topic_id = table.configuration[TOPIC_PROPERTY], table.configuration[TOPIC_ID_PROPERTY]
    except KeyError:
        raise TableNotFoundError(f"{table.location}: a Delta table, but not one that Millrace loads") from None
    generation = int(table.configuration.get(GENERATION_PROPERTY, "0"))
    return Ledger(topic, topic_id, entries_of(table, ledger_name(topic_id, generation)), generation)


def check_rows_have_ledger(table: Table) -> None:
    """Raises LedgerError where a table has rows that its ledger does not name as loaded."""
    table.check_ledger_copy()
    ledger, actions = ledger_of(table), table.add_actions()
    if not actions.num_rows or former_ledgers(table):
        return
    said = actions.column(MAX_PARTITION) if MAX_PARTITION in actions.column_names else None
    greatest = None if said is None else pc.max(said).as_py()
    if not ledger.partitions or (greatest is not None and greatest >= len(ledger.partitions)):
        raise LedgerError(
            f"{table.location} has rows, but its log does not say which offsets they are (a clone has none of Delta's "
            "application transactions, and other engines drop them by delta.setTransactionRetentionDuration): a load "
            "would load them again; load into another table"
        )


def check_ledger(table: Table, planned: Ledger) -> None:
    """Raises StaleLedgerError unless a table's ledger is the one that a plan was made from."""
    if ledger_of(table) != planned:
        raise StaleLedgerError(
            f"{table.location}: another load committed between this one's plan and its tables; run again"
        )


def entries_of(table: Table, ledger: str) -> dict[int, LedgerEntry]:
    """Returns, by partition, what a table says under the name of its present ledger or of a former one."""
    entries: dict[int, LedgerEntry] = {}
    for partition in count():
        next_offset = table.transaction_version(next_app_id(ledger, partition))
        start_offset = table.transaction_version(start_app_id(ledger, partition))
        if next_offset is None or start_offset is None:
            return entries
        leader_epoch = table.transaction_version(epoch_app_id(ledger, partition))
        entries[partition] = LedgerEntry(
            start_offset, next_offset, NO_LEADER_EPOCH if leader_epoch is None else leader_epoch
        )
    raise AssertionError


def former_ledgers(table: Table) -> dict[str, dict[int, LedgerEntry]]:
    """Returns the ledgers before the present one, by name, oldest first; the table has rows of theirs too."""
    names: list[str] = json.loads(table.configuration.get(FORMER_LEDGERS_PROPERTY, "[]"))
    return {name: entries_of(table, name) for name in names}


def read_ledger(location: str, fs: FileSystem = DISK) -> Ledger:
    """Returns the newest ledger of a table; raises TableNotFoundError where there is none."""
    return ledger_of(Table.load(location, fs))


def swap(ledger: Ledger, following: Mapping[int, LedgerEntry]) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns what a commit expects, and what it sets, by application id, to move partitions to `following` entries."""
    expected: dict[str, int | None] = {}
    transactions: dict[str, int] = {}
    for partition, entry in following.items():
        app_id = next_app_id(ledger.name, partition)
        expected[app_id] = ledger.next_offset(partition)
        transactions[app_id] = entry.next_offset
        before = ledger.partitions.get(partition)
        if before is None:
            transactions[start_app_id(ledger.name, partition)] = entry.start_offset
        if entry.leader_epoch != (NO_LEADER_EPOCH if before is None else before.leader_epoch):
            transactions[epoch_app_id(ledger.name, partition)] = entry.leader_epoch
    return expected, transactions
