"""One Spark task: it fetches a range, decodes it, writes Parquet, and answers with what it wrote.

A task is repeated safely: each attempt writes its own files, and the driver commits those of the attempt whose answer
it got.

Its rows are one file, or for a table with event time at least one for each partition. Rows wait in memory until their
partition has a row group's worth. Memory and open files are bounded: where the rows of all partitions take more than
MAX_PENDING_BYTES, the largest partition is written and its file closed, and no more than MAX_OPEN_FILES are open at
once. A partition whose file was closed gets another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace.records.absent import Intervals, as_intervals, coarse, count_of, intervals_of, joined
from millrace.records.arrow_columns import RECORD_SCHEMA
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.tracing import HEADER, MAX_CONTEXTS, TraceContext, sampled_contexts
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, Column, Indices, binaries
from millrace_pipelines.spark.read import ReadBlock
from millrace_pipelines.warehouse.choices import LOADED, Compression
from millrace_pipelines.warehouse.dead_letters import Offsets
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.payload import Payload
from millrace_pipelines.warehouse.payload.split import Splitter
from millrace_pipelines.warehouse.table.files import NO_IDS, DataFile, DataFileWriter, FieldIds
from millrace_pipelines.warehouse.table.lineage import merged, packed

MAX_PENDING_BYTES = 128 << 20
MAX_OPEN_FILES = 16

MAX_GAPS = 1000

ReadRange = Callable[[int, int, int], Iterator[ReadBlock]]
"""Takes partition, from_offset and until_offset; yields the records in the order of their offsets."""


class RowsWriter:
    """Writes rows to one file for each partition of the table.

    As a context manager, it removes unfinished files where an error is raised inside.
    """

    def __init__(
        self, location: str, load_id: str, task: int, splitter: Splitter, fs: FileSystem, *,
        compression: Compression, field_ids: FieldIds = NO_IDS,
    ) -> None:  # fmt: skip
        self._splitter = splitter
        self._open = partial(
            DataFileWriter, location, load_id, task, splitter.columns, fs,
            compression=compression, field_ids=field_ids,
        )  # fmt: skip
        self._writers: dict[int | None, DataFileWriter] = {}
        self._finished: list[DataFileWriter] = []
        self._files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (*self._finished, *self._writers.values()):
            writer.__exit__(kind, error, trace)

    def write(self, rows: pa.Table, spans: Indices | None) -> None:
        """Adds rows; `spans` has each row's partition of event time, None for a table without event time."""
        if spans is None or rows.num_rows == 0:
            self._write(None, rows)
            return
        order = np.argsort(spans, kind="stable")
        ordered, sorted_spans = rows.take(pa.array(order, pa.int64())), spans[order]
        found, firsts = np.unique(sorted_spans, return_index=True)
        for span, first, after in zip(found.tolist(), firsts, [*firsts[1:], len(order)], strict=True):
            self._write(span, ordered.slice(first, after - first))

    def _write(self, span: int | None, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        if span not in self._writers:
            self._writers[span] = self._open(partition_values=self._splitter.partition_values(span))
        self._writers[span].write(rows)
        while self._pending_bytes > MAX_PENDING_BYTES and len(self._writers) > 1:
            self._finish(max(self._writers, key=lambda one: self._writers[one].pending_bytes))
        open_files = [one for one, writer in self._writers.items() if writer.is_open]
        for one in open_files[:-MAX_OPEN_FILES]:
            self._finish(one)

    @property
    def _pending_bytes(self) -> int:
        return sum(writer.pending_bytes for writer in self._writers.values())

    def _finish(self, span: int | None) -> None:
        writer = self._writers.pop(span)
        self._finished.append(writer)
        if (file := writer.finish()) is not None:
            self._files.append(file)

    def finish(self) -> tuple[DataFile, ...]:
        """Closes and syncs the files of all partitions, and returns them."""
        for span in list(self._writers):
            self._finish(span)
        return tuple(self._files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """The settings that all tasks of one load share: the table, the decoder, and how files are written.

    `known_dead_letters` has, by partition, offsets of which a load that stopped before its rows made dead letters;
    `ledger` names the ledger that the offsets belong to; `compression` is the codec of the rows' files;
    `field_ids` and `dead_letter_ids` are what the columns of both are known by; where
    `is_traced`, a task reports the sampled trace contexts of its records.
    """

    load_id: str
    topic: str
    table: str
    dead_letters_table: str
    payload: Payload | None
    known_dead_letters: Mapping[int, Offsets] = field(default_factory=dict)
    ledger: str = ""
    compression: Compression = LOADED
    field_ids: FieldIds = field(default_factory=dict)
    dead_letter_ids: FieldIds = field(default_factory=dict)
    is_traced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The counts, offsets and files that one task reports: what it read and wrote.

    `control` and `aborted` count the offsets of markers and of aborted records, which give neither row nor dead letter,
    and `absent` those at which the log has nothing; `gaps` has their intervals (`coarse`); `damaged` has the offsets
    that are lost in damaged batches, but for the first ones, at which these are dead letters; `is_proven` says whether
    the reader can tell all these apart (Spark's connector can't). `recorded` has the offsets that gave a row or a dead
    letter (`table.lineage`), and is empty where all of the range did. `dead_letters` counts the dead letters that
    were read, whether written now or before; `late` counts the rows and dead letters whose event time was late;
    `leader_epoch` is that of the last batch; `traces` are headers `traceparent` (`traces`). `damage` says what of the
    log can't be read, if anything, and `refusal` why the task can't write into the table's folder, if it can't; then
    nothing was written.
    """

    range: OffsetRange
    records: int
    control: int = 0
    aborted: int = 0
    absent: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    damaged: tuple[tuple[int, int], ...] = ()
    is_proven: bool = True
    recorded: str = ""
    dead_letters: int = 0
    late: int = 0
    value_bytes: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    files: tuple[DataFile, ...] = ()
    dead_letter_files: tuple[DataFile, ...] = ()
    traces: tuple[str, ...] = ()
    damage: str = ""
    refusal: str = ""

    @property
    def rows(self) -> int:
        """Returns the number of rows in the files that the task wrote."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> str:
        """Returns the result as JSON, which is sent to Spark's driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskResult:
        """Returns the result that `to_json` wrote as JSON."""
        fields = json.loads(text)
        fields["range"] = OffsetRange(*fields["range"])
        for name in ("files", "dead_letter_files"):
            fields[name] = tuple(DataFile(**file) for file in fields[name])
        for name in ("gaps", "damaged"):
            fields[name] = tuple((first, end) for first, end in fields[name])
        fields["traces"] = tuple(fields["traces"])
        return cls(**fields)


def load_range(offset_range: OffsetRange, spec: LoadSpec, read: ReadRange, *, task: int, fs: FileSystem) -> TaskResult:
    """Reads a range and writes its rows and dead letters to files; raises RegistryError, or the errors of `read`."""
    records = control = aborted = absent = dead_letters = late = value_bytes = 0
    gaps: list[Intervals] = []
    recorded: list[Intervals] = []
    damaged: list[tuple[int, int]] = []
    leader_epoch = NO_LEADER_EPOCH
    known = spec.known_dead_letters.get(offset_range.partition, np.zeros(0, np.int64))
    contexts: tuple[TraceContext, ...] = ()
    splitter = Splitter(spec.payload, known, spec.load_id, spec.ledger)
    with (
        RowsWriter(
            spec.table, spec.load_id, task, splitter, fs, compression=spec.compression, field_ids=spec.field_ids
        ) as rows_files,
        DataFileWriter(
            spec.dead_letters_table, spec.load_id, task, DEAD_LETTER_SCHEMA, fs, field_ids=spec.dead_letter_ids
        ) as dead_writer,
    ):
        for block in read(*offset_range):
            split = splitter.split(_envelope(block.records, spec.topic, offset_range.partition))
            rows_files.write(split.rows, split.spans)
            dead_writer.write(split.dead_letters)
            records += block.records.num_rows
            recorded.append(intervals_of(block.records.column("offset").to_numpy()))
            control += block.control
            aborted += block.aborted
            absent += count_of(block.absent)
            gaps = [as_intervals(coarse(joined([*gaps, block.absent]), MAX_GAPS))] if len(block.absent) else gaps
            dead_letters += split.dead_letter_count
            late += split.late
            if block.damage is not None:
                dead_writer.write(splitter.damaged(spec.topic, offset_range.partition, block.damage))
                records, dead_letters = records + 1, dead_letters + 1
                first, until_offset = block.damage.interval
                recorded.append(as_intervals([(first, first + 1)]))
                damaged.append((first + 1, until_offset))
            value_bytes += _value_bytes(block.records)
            leader_epoch = max(leader_epoch, block.leader_epoch)  # they only grow
            if spec.is_traced and len(contexts) < MAX_CONTEXTS:
                contexts = (*contexts, *sampled_contexts(_traceparents(block.records)))[:MAX_CONTEXTS]
        dead_file = dead_writer.finish()
        return TaskResult(
            range=offset_range,
            records=records,
            control=control,
            aborted=aborted,
            absent=absent,
            gaps=tuple(coarse(joined(gaps), MAX_GAPS)),
            recorded="" if records == offset_range.offsets else packed(merged(recorded), offset_range.from_offset),
            damaged=tuple(damaged),
            dead_letters=dead_letters,
            late=late,
            value_bytes=value_bytes,
            leader_epoch=leader_epoch,
            files=rows_files.finish(),
            dead_letter_files=() if dead_file is None else (dead_file,),
            traces=tuple(map(str, contexts)),
        )


def _envelope(records: pa.RecordBatch, topic: str, partition: int) -> pa.Table:
    """Returns records as the envelope's columns, and after them those columns of `records` that the envelope lacks."""
    constants: list[Column] = [
        pa.repeat(pa.scalar(topic, pa.string()), records.num_rows),
        pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows),
    ]
    fields = [*ENVELOPE_SCHEMA, *list(records.schema)[len(RECORD_SCHEMA) :]]
    return pa.Table.from_arrays([*constants, *records.columns], schema=pa.schema(fields))


def _traceparents(records: pa.RecordBatch) -> Iterator[bytes | None]:
    """Yields the distinct values of the header `traceparent` in the records."""
    headers = cast("Any", records.column("headers")).flatten()
    values = headers.field("value").filter(pc.equal(headers.field("key"), pa.scalar(HEADER)))
    for value in values.unique():
        yield value.as_py()


def _value_bytes(records: pa.RecordBatch) -> int:
    return pc.sum(pc.binary_length(binaries(records.column("value")))).as_py() or 0
