"""Lets a table go on with another topic that has its records at the same offsets: a mirror that follows its topic.

The table's ledger ends, and another one begins under the id of that topic, at the same next offsets. So the next load
reads from there what the table lacks, and nothing twice. Earlier rows stay. Leader epochs are forgotten, for those of
another cluster say nothing here.

That it is the same log is proven by content: of each partition the newest records that the table has, rows and dead
letters, have to be at their offsets in the topic, with their keys, values and times. An id, a name or a mirror's word
proves nothing.

Dead letters have a ledger of their own, which is switched first. A crash between the two leaves a table that takes no
load until the switch is made again, which finishes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millrace.client import Cluster, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace.records.record import Record
from millrace_pipelines.arrow import ENVELOPE_COLUMNS
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.brokers import LogOffsets, TopicSource, describe_topic, is_topic_compacted, log_offsets
from millrace_pipelines.warehouse.errors import SwitchError
from millrace_pipelines.warehouse.formats import address_of, load_if_there, load_table
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerChange, LedgerEntry, begin_ledger, ledger_of
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table

LOOKED_AT = 1000  # newest records of a partition


class Switched(NamedTuple):
    """What a switch has done: the topic that the table goes on with, and how many records of it were compared.

    `next_offsets` has by partition the offset from which the next load reads.
    """

    topic: str
    topic_id: str
    former_topic: str
    former_topic_id: str
    compared: int
    next_offsets: Mapping[int, int]


def switch_topic(
    location: str, source: TopicSource, *, dry_run: bool = False, fs: FileSystem = DISK, clock: Clock = CLOCK
) -> Switched:
    """Makes a table go on with a topic that has its records at the same offsets; with `dry_run` it only compares.

    Raises:
        SwitchError: The topic lacks what the table has, has something else there, or is the table's already.
        TableNotFoundError: There is no table.
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
        StaleLedgerError: A load came between; run again.
    """
    rows = load_table(address_of(location, fs), fs)
    dead_letters = load_if_there(dead_letters_dir(rows.address), fs)
    tables = [one for one in (dead_letters, rows) if one is not None]
    present, found = ledger_of(rows), describe_topic(source)
    waiting = [one for one in tables if ledger_of(one).topic_id != found.topic_id]
    if not waiting:
        raise SwitchError(f"{rows.address} is loaded from topic {source.topic} of this cluster already")
    reached = _reached(tables)
    _check_offsets(source, reached, log_offsets(source, found.partitions))
    compared = _compare(source, tables, reached)
    for table in () if dry_run else waiting:
        change = LedgerChange(_following(ledger_of(table), source.topic, found.topic_id), ())
        begin_ledger(table, change, load_id=uuid.uuid4().hex, time_ms=clock.now_ms())
    next_offsets = {partition: entry.next_offset for partition, entry in present.partitions.items()}
    return Switched(source.topic, found.topic_id, present.topic, present.topic_id, compared, next_offsets)


def _reached(tables: list[Table]) -> dict[int, int]:
    """Returns by partition the offset after the last one that the rows or the dead letters have."""
    reached: dict[int, int] = {}
    for table in tables:
        for partition, entry in ledger_of(table).partitions.items():
            reached[partition] = max(entry.next_offset, reached.get(partition, 0))
    return reached


def _following(ledger: Ledger, topic: str, topic_id: str) -> Ledger:
    partitions = {one: LedgerEntry(entry.next_offset, entry.next_offset) for one, entry in ledger.partitions.items()}
    return Ledger(topic, topic_id, partitions)


def _check_offsets(source: TopicSource, reached: Mapping[int, int], log: Mapping[int, LogOffsets]) -> None:
    """Raises SwitchError unless the topic has each partition up to where the table has it."""
    for partition, next_offset in reached.items():
        place = f"topic {source.topic}, partition {partition}"
        if partition not in log:
            raise SwitchError(f"{place}: the table has it, and the topic does not")
        if log[partition].end_offset < next_offset:
            raise SwitchError(
                f"{place}: it ends at offset {log[partition].end_offset}, and the table has offsets up to "
                f"{next_offset - 1}; switch once the mirror has them too"
            )
        if log[partition].start_offset > next_offset:
            raise SwitchError(
                f"{place}: it begins at offset {log[partition].start_offset}, and the table lacks offsets from "
                f"{next_offset} on; load these from the former topic first"
            )


def _compare(source: TopicSource, tables: list[Table], reached: Mapping[int, int]) -> int:
    """Returns how many records the tables and the topic have in common; raises SwitchError where they differ."""
    is_compacted, compared = is_topic_compacted(source), 0
    with Cluster(source.bootstrap, security=source.security.read()) as cluster:
        consumer = SimpleConsumer(cluster)
        for partition in reached:
            kept = [one for table in tables for one in _newest(table, partition)]
            kept.sort(key=lambda one: one["offset"])
            start = consumer.earliest(source.topic, partition)
            there = [one for one in kept[-LOOKED_AT:] if one["offset"] >= start]
            if kept and not there:
                raise SwitchError(
                    f"topic {source.topic}, partition {partition}: it begins at offset {start}, so that nothing of it "
                    "can be compared with the table"
                )
            compared += _compare_partition(source, consumer, partition, there, is_compacted=is_compacted)
    return compared


Row = Mapping[str, Any]


def _newest(table: Table, partition: int) -> Iterator[Row]:
    """Yields the rows of a partition's greatest offsets, as far as they have the envelope's columns."""
    is_of_it = pc.field("partition") == partition
    dataset = table.dataset()
    offsets = dataset.to_table(columns=["offset"], filter=is_of_it).column("offset")
    if not len(offsets):
        return
    least = pc.min(pc.take(offsets, pc.top_k_unstable(offsets, min(LOOKED_AT, len(offsets))))).as_py()
    names = [name for name in ENVELOPE_COLUMNS if name in table.schema.names and name != "headers"]
    newest = dataset.to_table(columns=names, filter=is_of_it & (pc.field("offset") >= least))
    if "timestamp" in newest.column_names:
        at = newest.column_names.index("timestamp")
        newest = newest.set_column(at, "timestamp", newest.column("timestamp").cast(pa.int64()))
    yield from newest.to_pylist()


def _compare_partition(
    source: TopicSource, consumer: SimpleConsumer, partition: int, rows: list[Row], *, is_compacted: bool
) -> int:
    if not rows:
        return 0
    first, last = rows[0]["offset"], rows[-1]["offset"]
    isolation = IsolationLevel[source.isolation.name]
    read = consumer.messages(source.topic, partition, first, until_offset=last + 1, isolation=isolation)
    records = {one.offset: one for one in read}
    compared = 0
    for row in rows:
        record = records.get(row["offset"])
        if record is None and is_compacted:
            continue
        wrong = "the record" if record is None else _difference(row, record)
        if wrong:
            raise SwitchError(
                f"topic {source.topic}, partition {partition}, offset {row['offset']}: {wrong} differs from the "
                "table's: the topic is no mirror at the same offsets; load it into another table"
            )
        compared += 1
    return compared


def _difference(row: Row, record: Record) -> str:
    """Returns what of a record differs from its row, "" for nothing; a time or value that a row lacks may be any."""
    if row.get("timestamp") is not None and row["timestamp"] != record.timestamp_ms * 1000:
        return "the timestamp"
    if "key" in row and row["key"] != record.key:
        return "the key"
    return "the value" if row.get("value") is not None and row["value"] != record.value else ""
