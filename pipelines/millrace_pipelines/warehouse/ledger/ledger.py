"""The offsets that a table holds, kept in the table's own log as Delta Lake's application transactions.

    app id                                    version
    millrace/<ledger>/<partition>             next offset: the first one that the table doesn't have
    millrace/<ledger>/<partition>/start       the offset at which the partition's first load began
    millrace/<ledger>/<partition>/epoch       leader epoch of the last batch read, -1 where none is known

Every partition that the topic has when something is committed gets the first two, even one without a record, so that
the ledger's partitions are 0 … n - 1 without a gap.

A ledger is named by the topic's id. Where a table goes on with a topic that was recreated, or with a log that was
truncated, it begins another ledger: under the new id, or under `<topic id>.<generation>`. Where it goes on with a
mirror of its topic, that ledger begins at the same offsets (`load.switch`). The names of the former ones are in the
table's properties, and what these say of the rows stays true. One commit changes the table's properties and sets the
new ledger's offsets; from then on the former ledger moves no more, and a load that was planned on it is refused.
Earlier rows stay. What is given up is in that commit's lineage, and in the table of skipped ranges, which is another
table at `<table>__skipped`.

The lineage of the commit that went on holds the truth; in the same commit, the transaction `millrace/skipped` of the
table counts such commits. The rows are made from the lineage afterwards, each exactly once, for the transaction of that
name in the table of skipped ranges counts the commits whose rows it has:

    crash before the commit          nothing was skipped
    crash between commit and rows    the table's count is ahead, and the next load or reload writes the rows

A lease is held while they are written, so that maintenance of this table leaves the new file alone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_pipelines.arrow import Field
from millrace_pipelines.machine import DISK
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import FORMER_OFFSETS_STAY, Accept, LogTruncatedError, TopicRecreatedError
from millrace_pipelines.warehouse.errors import LedgerError, StaleLedgerError, TableNotFoundError
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.rewrite import files_removed_on
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.table.lineage import Lineage, LineageRange
from millrace_pipelines.warehouse.table.table import Table, counted

TOPIC_PROPERTY = "millrace.topic"
TOPIC_ID_PROPERTY = "millrace.topicId"
GENERATION_PROPERTY = "millrace.generation"
FORMER_LEDGERS_PROPERTY = "millrace.formerLedgers"
MAX_PARTITION = "max.partition"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The offsets of one partition that a table holds: start_offset up to, not including, next_offset."""

    start_offset: int
    next_offset: int
    leader_epoch: int = field(default=NO_LEADER_EPOCH, compare=False)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The offsets that a table holds of its topic, by partition; `name` is a part of the application ids."""

    topic: str
    topic_id: str
    partitions: Mapping[int, LedgerEntry]
    generation: int = 0

    @property
    def name(self) -> str:
        """Returns the name in application ids: the topic's id, then `.GENERATION` from the second ledger on."""
        return ledger_name(self.topic_id, self.generation)

    def next_offset(self, partition: int) -> int | None:
        """Returns the first offset that the table doesn't have; None before the partition's first load."""
        entry = self.partitions.get(partition)
        return None if entry is None else entry.next_offset


def ledger_name(topic_id: str, generation: int) -> str:
    """Returns a ledger's name in application ids: the topic's id, with `.GENERATION` after it from the second on."""
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
    """Returns the ledger in a version of a table; raises TableNotFoundError where no load created the table."""
    try:
        topic, topic_id = table.configuration[TOPIC_PROPERTY], table.configuration[TOPIC_ID_PROPERTY]
    except KeyError:
        raise TableNotFoundError(f"{table.address}: a Delta table, but not one that Millrace loads") from None
    generation = int(table.configuration.get(GENERATION_PROPERTY, "0"))
    return Ledger(topic, topic_id, entries_of(table, ledger_name(topic_id, generation)), generation)


def check_rows_have_ledger(table: Table) -> None:
    """Raises LedgerError where a table has rows, but its ledger lacks all offsets or those of a partition with rows."""
    table.check_ledger_copy()
    ledger, actions = ledger_of(table), table.add_actions()
    if not actions.num_rows or former_ledgers(table):
        return
    said = actions.column(MAX_PARTITION) if MAX_PARTITION in actions.column_names else None
    greatest = None if said is None else pc.max(said).as_py()
    if not ledger.partitions or (greatest is not None and greatest >= len(ledger.partitions)):
        raise LedgerError(
            f"{table.address} has rows, but its log does not say which offsets they are (a clone has none of Delta's "
            "application transactions, and other engines drop them by delta.setTransactionRetentionDuration): a load "
            "would load them again; load into another table"
        )


def check_ledger(table: Table, planned: Ledger) -> None:
    """Raises StaleLedgerError unless a table's ledger is the one that a plan was made from."""
    if ledger_of(table) != planned:
        raise StaleLedgerError(
            f"{table.address}: another load committed between this one's plan and its tables; run again"
        )


def entries_of(table: Table, ledger: str) -> dict[int, LedgerEntry]:
    """Returns, by partition, the offsets that a table holds under the name of a ledger, the present or a former one."""
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
    """Returns the entries of earlier ledgers by name, oldest first; the table has rows of these, too."""
    names: list[str] = json.loads(table.configuration.get(FORMER_LEDGERS_PROPERTY, "[]"))
    return {name: entries_of(table, name) for name in names}


def read_ledger(location: str, fs: FileSystem = DISK) -> Ledger:
    """Returns the newest ledger of a table; raises TableNotFoundError where there is none."""
    return ledger_of(load_table(location, fs))


def swap(ledger: Ledger, following: Mapping[int, LedgerEntry]) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns, by application id, the versions that a commit expects and sets to move partitions to `following`."""
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


SKIPPED_SUFFIX = "__skipped"
SKIPPED_APP_ID = "millrace/skipped"
LINEAGE_LIST: Final = "lost"
MISSING_LIST: Final = "missing"
FIELDS: list[Field] = [
    pa.field("topic", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("from_offset", pa.int64()),
    pa.field("until_offset", pa.int64()),
    pa.field("reason", pa.string()),
    pa.field("time", TIMESTAMP_TYPE),
    pa.field("load_id", pa.string()),
]
SCHEMA = pa.schema(FIELDS)
RECREATED = "topic recreated"
TRUNCATED = "log truncated"


def skipped_location(table: str) -> str:
    """Returns the address of the table of skipped ranges beside a table."""
    return table.rstrip("/") + SKIPPED_SUFFIX


def publish_skipped(table: Table, fs: FileSystem) -> int:
    """Adds the ranges that commits skipped, and that it lacks, to the table of skipped ranges; returns their number.

    Raises:
        StaleLedgerError: Another process added ranges at the same time.
    """
    count = table.transaction_version(SKIPPED_APP_ID)
    if count is None:
        return 0
    skipped = load_or_create(
        skipped_location(table.address), fs, schema=SCHEMA, name=f"{table.name} skipped", configuration={}
    )  # fmt: skip
    location = skipped.location
    done = skipped.transaction_version(SKIPPED_APP_ID)
    if count == done:
        return 0
    commits = [commit for commit in table.lineage() if _skipped(commit)][(done or 0) : count]
    rows = [row for commit in commits for row in _rows(commit)]
    operation_id = uuid.uuid4().hex
    with lease(location, operation_id, fs), files_removed_on(StaleLedgerError, [location], operation_id, fs):
        file = write_file(location, operation_id, pa.Table.from_pylist(rows, SCHEMA), fs, skipped.field_ids)
        skipped.commit(
            [file], expected={SKIPPED_APP_ID: done}, transactions={SKIPPED_APP_ID: count}, lineage={"kind": "skipped"}
        )
    return len(rows)


def _rows(commit: Lineage) -> Sequence[Mapping[str, object]]:
    topic, topic_id, load_id, time_us = commit["topic"], commit["topic_id"], commit["load_id"], commit["time_ms"] * 1000
    return [
        {"topic": topic, "topic_id": topic_id, "load_id": load_id, "time": time_us, **offset_range}
        for offset_range in _skipped(commit)
    ]


def _skipped(commit: Lineage) -> list[LineageRange]:
    return [*commit.get(LINEAGE_LIST, ()), *commit.get(MISSING_LIST, ())]


class GivenUp(NamedTuple):
    """Offsets of a former ledger that the log has lost; `until_offset` is None where their end is not known.

    The table keeps the rows that it has of these offsets.
    """

    partition: int
    from_offset: int
    until_offset: int | None
    reason: str


class AgreedEnd(NamedTuple):
    """The offset up to which a log agrees with what was loaded of it, and where to load from if the table has more."""

    offset: int
    restart: int


def agreed_end(
    log: LogOffsets, epoch_end: int | None, *, has_older_epoch: bool = False, has_newer_epoch: bool = False
) -> AgreedEnd:
    """Returns the offset up to which a log still has what was loaded of it, and where to go on if that is less.

    A leader of an older epoch than that of the last loaded batch has another log, as after a backup was restored: it
    agrees on nothing. If there is a newer epoch, or the log goes on past the end of that epoch, then the epoch's end is
    where the log was cut. In the same epoch the log itself ends there, perhaps above its high watermark, which a leader
    without followers does not advance. Where a log is shorter in the same epoch, the offset of the cut is not known,
    and the whole log is loaded again: rows of two ledgers are better than none.

    Args:
        log: Where the log starts and ends.
        epoch_end: Where the log says that the leader epoch of the last loaded batch ends; None where it doesn't say.
        has_older_epoch: Whether the leader's epoch is older than that.
        has_newer_epoch: Whether it is newer.
    """
    if has_older_epoch:
        return AgreedEnd(log.start_offset, log.start_offset)
    if epoch_end is not None and (has_newer_epoch or epoch_end < log.log_end):
        return AgreedEnd(epoch_end, epoch_end)
    return AgreedEnd(log.log_end if epoch_end is None else epoch_end, log.start_offset)


def cut_partitions(ledger: Ledger, agreed_ends: Mapping[int, AgreedEnd], ahead: Mapping[int, int]) -> dict[int, int]:
    """Returns, for each partition whose log has lost loaded offsets, the offset up to which it had been loaded."""
    reached = {
        partition: max(entry.next_offset, ahead.get(partition, 0)) for partition, entry in ledger.partitions.items()
    }
    return {
        partition: next_offset
        for partition, next_offset in reached.items()
        if partition in agreed_ends and agreed_ends[partition].offset < next_offset
    }


class LedgerChange(NamedTuple):
    """The ledger that a table goes on with, its entries still empty, and the offsets that are given up."""

    ledger: Ledger
    given_up: tuple[GivenUp, ...]


def next_ledger(
    ledger: Ledger,
    topic_id: str,
    agreed_ends: Mapping[int, AgreedEnd],
    *,
    ahead: Mapping[int, int],
    accept_recreated_topic: bool,
    accept_truncated_log: bool,
) -> LedgerChange | None:
    """Returns the ledger that the table has to go on with; None where it keeps the present one.

    Args:
        ledger: The table's ledger.
        topic_id: The topic's current id.
        agreed_ends: By partition, up to where its log may hold what was loaded of it.
        ahead: The next offsets of the dead letters, which a crash may leave above the ledger's.
        accept_recreated_topic: Whether a topic of another id may follow.
        accept_truncated_log: Whether a shorter log, or one with other records, may follow.

    Raises:
        TopicRecreatedError: The topic was deleted and created again.
        LogTruncatedError: A log has less, or something else, than was loaded of it; or a partition is gone.
    """
    if ledger.topic_id != topic_id:
        if not accept_recreated_topic:
            raise TopicRecreatedError(_recreated_message(ledger, topic_id), Accept.RECREATED_TOPIC)
        return _after_recreation(ledger, topic_id)
    for partition in ledger.partitions.keys() - agreed_ends.keys():
        raise LogTruncatedError(f"topic {ledger.topic}: partition {partition} is in the table but not in the topic")
    cut = cut_partitions(ledger, agreed_ends, ahead)
    if not cut:
        return None
    if not accept_truncated_log:
        ranges = [(partition, agreed_ends[partition].offset, next_offset) for partition, next_offset in cut.items()]
        raise LogTruncatedError(_truncated_message(ledger.topic, ranges), Accept.TRUNCATED_LOG)
    return _after_truncation(ledger, {partition: agreed_ends[partition] for partition in cut})


def begin_ledger(table: Table, change: LedgerChange, *, load_id: str, time_ms: int) -> None:
    """Commits the change to another ledger; raises StaleLedgerError where a load moves the present one first."""
    following, present = change.ledger, ledger_of(table)
    expected, transactions = swap(replace(following, partitions={}), following.partitions)
    unmoved, ends = swap(present, present.partitions)
    expected, transactions = expected | unmoved, transactions | ends
    if change.given_up:
        before, after = counted(table, SKIPPED_APP_ID)
        expected, transactions = expected | before, transactions | after
    lineage = {
        "kind": "ledger",
        "load_id": load_id,
        "time_ms": time_ms,
        "ledger": present.name,
        "topic": present.topic,
        "topic_id": present.topic_id,
        LINEAGE_LIST: [offset_range._asdict() for offset_range in change.given_up],
    }
    properties = {
        TOPIC_PROPERTY: following.topic,
        TOPIC_ID_PROPERTY: following.topic_id,
        GENERATION_PROPERTY: str(following.generation),
        FORMER_LEDGERS_PROPERTY: json.dumps([*former_ledgers(table), present.name]),
    }
    table.configure(properties, expected=expected, transactions=transactions, lineage=lineage)


def _after_recreation(ledger: Ledger, topic_id: str) -> LedgerChange:
    """Returns the change to an empty ledger under the topic's new id; the end of the old topic's offsets is unknown."""
    given_up = [
        GivenUp(partition, entry.next_offset, None, RECREATED) for partition, entry in ledger.partitions.items()
    ]
    return LedgerChange(Ledger(ledger.topic, topic_id, {}), tuple(given_up))


def _after_truncation(ledger: Ledger, cut: Mapping[int, AgreedEnd]) -> LedgerChange:
    """Returns the next generation: partitions whose logs were cut begin at the cut, others at their next offset.

    Each keeps the leader epoch of its last loaded batch, by which a further cut is noticed before the next load.
    """
    following: dict[int, LedgerEntry] = {}
    given_up: list[GivenUp] = []
    for partition, entry in ledger.partitions.items():
        position = cut[partition].restart if partition in cut else entry.next_offset
        following[partition] = LedgerEntry(position, position, entry.leader_epoch)
        if partition in cut and cut[partition].offset < entry.next_offset:
            given_up.append(GivenUp(partition, cut[partition].offset, entry.next_offset, TRUNCATED))
    return LedgerChange(replace(ledger, partitions=following, generation=ledger.generation + 1), tuple(given_up))


def _recreated_message(ledger: Ledger, topic_id: str) -> str:
    have = ", ".join(f"partition {partition}: {entry.next_offset}" for partition, entry in ledger.partitions.items())
    return (
        f"topic {ledger.topic} was deleted and created again since the table was loaded: its id is {topic_id}, the "
        f"table's {ledger.topic_id}; whatever the old topic had from these offsets on is lost: "
        f"{have or 'nothing was loaded'}. A load with {Accept.RECREATED_TOPIC.flag} goes on with the new topic in "
        f"a new ledger, and {FORMER_OFFSETS_STAY}; or load it into another table"
    )


def _truncated_message(topic: str, cut: Iterable[tuple[int, int, int]]) -> str:
    ranges = "; ".join(
        f"partition {partition}: the log agrees up to offset {end}, the table has offsets up to {reached - 1}"
        for partition, end, reached in cut
    )
    return (
        f"topic {topic} lost records that the table has ({ranges}). A load with {Accept.TRUNCATED_LOG.flag} keeps "
        "their rows and goes on in a new ledger from where the logs were cut, or from their start where that is not "
        f"known, and {FORMER_OFFSETS_STAY}; or load the topic into another table"
    )
