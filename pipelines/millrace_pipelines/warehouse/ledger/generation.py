"""A new ledger in the same table: for a topic that was recreated, and for a log that differs from what was loaded.

One commit changes the table's properties and sets the new ledger's offsets; from then on the former ledger moves no
more, and a load that was planned on it is refused. Earlier rows stay. What is given up is in that commit's lineage, and
in the table of skipped ranges.

Skipped ranges are rows of another table at `<table>__skipped`:

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
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from millrace.fs import FileSystem
from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import Accept, LogTruncatedError, TopicRecreatedError
from millrace_pipelines.warehouse.delta.files import write_file
from millrace_pipelines.warehouse.delta.leases import lease
from millrace_pipelines.warehouse.delta.lineage import Lineage, LineageRange
from millrace_pipelines.warehouse.delta.rewrite import files_removed_on
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import (
    FORMER_LEDGERS_PROPERTY,
    GENERATION_PROPERTY,
    TOPIC_ID_PROPERTY,
    Ledger,
    LedgerEntry,
    former_ledgers,
    ledger_of,
    swap,
)

SKIPPED_SUFFIX = "__skipped"
APP_ID = "millrace/skipped"
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
    """Returns the location of the table of skipped ranges."""
    return table.rstrip("/") + SKIPPED_SUFFIX


def count_skips(table: Table) -> tuple[dict[str, int | None], dict[str, int]]:
    """Returns, by application id, the versions that a commit with skipped ranges expects and sets."""
    return table.counted(APP_ID)


def publish_skipped(table: Table, fs: FileSystem) -> int:
    """Writes the rows of commits that skipped something, as far as they are missing, and returns their number.

    Raises:
        StaleLedgerError: Another process wrote them at the same time.
    """
    count = table.transaction_version(APP_ID)
    if count is None:
        return 0
    location = skipped_location(table.location)
    skipped = Table.load_or_create(location, fs, schema=SCHEMA, name=f"{table.name} skipped", configuration={})
    done = skipped.transaction_version(APP_ID)
    if count == done:
        return 0
    commits = [commit for commit in table.lineage() if _skipped(commit)][(done or 0) : count]
    rows = [row for commit in commits for row in _rows(commit)]
    operation_id = uuid.uuid4().hex
    with lease(location, operation_id, fs), files_removed_on(StaleLedgerError, [location], operation_id, fs):
        file = write_file(location, operation_id, pa.Table.from_pylist(rows, SCHEMA), fs)
        skipped.commit([file], expected={APP_ID: done}, transactions={APP_ID: count}, lineage={"kind": "skipped"})
    return len(rows)


def _rows(commit: Lineage) -> Sequence[Mapping[str, object]]:
    topic, topic_id, load_id, time_us = commit["topic"], commit["topic_id"], commit["load_id"], commit["time_ms"] * 1000
    return [
        {"topic": topic, "topic_id": topic_id, "load_id": load_id, "time": time_us, **span} for span in _skipped(commit)
    ]


def _skipped(commit: Lineage) -> list[LineageRange]:
    return [*commit.get(LINEAGE_LIST, ()), *commit.get(MISSING_LIST, ())]


class GivenUp(NamedTuple):
    """Offsets of a former ledger that the log has no longer; until_offset is None where their end is not known.

    The table keeps the rows that it has of these offsets.
    """

    partition: int
    from_offset: int
    until_offset: int | None
    reason: str


class AgreedEnd(NamedTuple):
    """The offset up to which a log may hold what was loaded of it, and where to load from if that is not far enough."""

    offset: int
    restart: int


def agreed_end(
    log: LogOffsets, epoch_end: int | None, *, has_older_epoch: bool = False, has_newer_epoch: bool = False
) -> AgreedEnd:
    """Returns up to where a log agrees with what was loaded of it.

    A leader of an older epoch than that of the last loaded batch has another log, as after a backup was restored: it
    agrees on nothing. If there is a newer epoch, or the log goes on past the end of that epoch, then the epoch's end is
    where the log was cut. In the same epoch the log itself ends there, perhaps above its high watermark, which a leader
    without followers does not advance. Where a log is shorter in the same epoch, the place of the cut is not known, and
    the whole log is loaded again: rows of two ledgers are better than none.

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
    """Returns the partitions whose logs do not hold all that was loaded of them, and the offsets up to where it was."""
    reached = {
        partition: max(entry.next_offset, ahead.get(partition, 0)) for partition, entry in ledger.partitions.items()
    }
    return {
        partition: next_offset
        for partition, next_offset in reached.items()
        if partition in agreed_ends and agreed_ends[partition].offset < next_offset
    }


class LedgerChange(NamedTuple):
    """The ledger that a table goes on with, its entries at where it begins, and what is given up."""

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
    """Returns the ledger to go on with; None for the present one.

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
        spans = [(partition, agreed_ends[partition].offset, next_offset) for partition, next_offset in cut.items()]
        raise LogTruncatedError(_truncated_message(ledger.topic, spans), Accept.TRUNCATED_LOG)
    return _after_truncation(ledger, {partition: agreed_ends[partition] for partition in cut})


def begin_ledger(table: Table, change: LedgerChange, *, load_id: str, time_ms: int) -> None:
    """Lets the table go on with another ledger; raises StaleLedgerError where a load moves the present one first."""
    following, present = change.ledger, ledger_of(table)
    expected, transactions = swap(replace(following, partitions={}), following.partitions)
    unmoved, ends = swap(present, present.partitions)
    expected, transactions = expected | unmoved, transactions | ends
    if change.given_up:
        counted, counts = count_skips(table)
        expected, transactions = expected | counted, transactions | counts
    lineage = {
        "kind": "ledger",
        "load_id": load_id,
        "time_ms": time_ms,
        "ledger": present.name,
        "topic": present.topic,
        "topic_id": present.topic_id,
        LINEAGE_LIST: [span._asdict() for span in change.given_up],
    }
    properties = {
        TOPIC_ID_PROPERTY: following.topic_id,
        GENERATION_PROPERTY: str(following.generation),
        FORMER_LEDGERS_PROPERTY: json.dumps([*former_ledgers(table), present.name]),
    }
    table.configure(properties, expected=expected, transactions=transactions, lineage=lineage)


def _after_recreation(ledger: Ledger, topic_id: str) -> LedgerChange:
    """Returns an empty ledger under the topic's new id; what the old topic had beyond the table is not known."""
    given_up = [
        GivenUp(partition, entry.next_offset, None, RECREATED) for partition, entry in ledger.partitions.items()
    ]
    return LedgerChange(Ledger(ledger.topic, topic_id, {}), tuple(given_up))


def _after_truncation(ledger: Ledger, cut: Mapping[int, AgreedEnd]) -> LedgerChange:
    """Returns the next generation: cut partitions go on where their logs were cut, the others where they are.

    Each keeps the leader epoch of what was loaded last, which shows another cut that comes before more is loaded.
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
        "a new ledger; or load it into another table"
    )


def _truncated_message(topic: str, cut: Iterable[tuple[int, int, int]]) -> str:
    spans = "; ".join(
        f"partition {partition}: the log agrees up to offset {end}, the table has offsets up to {reached - 1}"
        for partition, end, reached in cut
    )
    return (
        f"topic {topic} lost records that the table has ({spans}). A load with {Accept.TRUNCATED_LOG.flag} keeps their "
        "rows and goes on in a new ledger from where the logs were cut, or from their start where that is not known; "
        "or load the topic into another table"
    )
