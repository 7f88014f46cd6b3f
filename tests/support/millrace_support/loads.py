"""Tables written as loads write them, or as no load would, without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace.fs import OsFileSystem
from millrace.records.absent import intervals_of
from millrace_pipelines.arrow import ENVELOPE_SCHEMA, Column, nulls_of
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.ledger.ledger import (
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    LedgerEntry,
    ledger_of,
    swap,
)
from millrace_pipelines.warehouse.ledger.plan import OffsetRange, ReloadPlan
from millrace_pipelines.warehouse.load.commit import Replacement
from millrace_pipelines.warehouse.load.history import lineage_of_reload
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import ReloadReport, Written, verify_results
from millrace_pipelines.warehouse.load.task import TaskResult
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter, NamedFile
from millrace_pipelines.warehouse.table.lineage import LineageRange, OffsetPage, keep_offsets, packed
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

FS = OsFileSystem()
PROPERTIES = {TOPIC_PROPERTY: "events", TOPIC_ID_PROPERTY: "id-1"}


class Loads:
    """Writes the table of the topic `events`, partition by partition, and the dead letters beside it.

    Args:
        address: Where the table is created, in the format that this means, unless it is there.
        properties: Its properties.
        schema: Its columns.
    """

    def __init__(
        self, address: str, properties: Mapping[str, str] = PROPERTIES, schema: pa.Schema = ENVELOPE_SCHEMA
    ) -> None:
        self.address = address
        self._properties = properties
        self._schema = schema
        self.directory = self.table(address).location

    def table(self, address: str, schema: pa.Schema | None = None) -> Table:
        """Loads a table, which is created unless it is there."""
        columns = schema or self._schema
        return load_or_create(address, FS, schema=columns, name="events", configuration=self._properties)

    def write(
        self,
        address: str,
        offsets: Sequence[int],
        partition: int = 0,
        schema: pa.Schema | None = None,
        values: Mapping[str, Sequence[object]] | None = None,
    ) -> DataFile:
        """Writes a file of rows with these offsets; the other columns have the values that are given, or null."""
        columns = schema or self._schema
        given: dict[str, Sequence[object]] = {
            "partition": [partition] * len(offsets),
            "offset": offsets,
            "ledger": ["id-1"] * len(offsets),
            **(values or {}),
        }
        arrays: list[Column] = [
            pa.array(given[field.name], field.type) if field.name in given else nulls_of(field.type, len(offsets))
            for field in columns
        ]
        table = self.table(address, columns)
        with DataFileWriter(table.location, "load", 0, columns, FS, field_ids=table.field_ids) as writer:
            writer.write(pa.Table.from_arrays(arrays, schema=columns))
            file = writer.finish()
        assert file is not None
        return file

    def load(
        self,
        span: tuple[int, int],
        rows: Sequence[int],
        *,
        dead: Sequence[int] = (),
        partition: int = 0,
        claimed: bool = True,
        ranges: Sequence[LineageRange] | None = None,
        lost: Sequence[LineageRange] = (),
        values: Mapping[str, Sequence[object]] | None = None,
        keeps: bool = False,
        **facts: object,
    ) -> int:
        """Commits a load of one range; its lineage agrees with its rows unless an argument says otherwise.

        Where it `keeps` the offsets of rows and letters, it does as loads do, and else as those of older versions did.
        """
        low, high = span
        table = self.table(self.address)
        expected, transactions = swap(ledger_of(table), {partition: LedgerEntry(low, high)})
        compacted = high - low - len(rows) - len(dead)
        claim = LineageRange(
            partition=partition, from_offset=low, until_offset=high,
            rows=len(rows), dead_letters=len(dead), compacted=compacted,
        )  # fmt: skip
        lineage: dict[str, object] = {"kind": "load", "ledger": ledger_of(table).name, "lost": list(lost)}
        lineage |= {"ranges": ranges if ranges is not None else [claim] if claimed else []} | facts
        if keeps:
            page = _page(partition, span, [*rows, *dead])
            lineage["recorded"] = keep_offsets(store_at(self.directory, FS), "load", [page])
        if dead:
            beside = dead_letters_dir(self.address)
            letters = self.table(beside, DEAD_LETTER_SCHEMA)
            file = self.write(beside, dead, partition, DEAD_LETTER_SCHEMA)
            letters.commit([file], expected={}, transactions=transactions, lineage=lineage)
        files = [self.write(self.address, rows, partition, values=values)] if rows else []
        return table.commit(files, expected=expected, transactions=transactions, lineage=lineage)

    def reload(
        self,
        span: tuple[int, int],
        rows: Sequence[int],
        *,
        dead: Sequence[int] = (),
        partition: int = 0,
        values: Mapping[str, Sequence[object]] | None = None,
        tasks: Tasks = THREADS,
    ) -> int:
        """Commits what a reload of one range that the table has would read."""
        part = OffsetRange(partition, *span)
        beside = dead_letters_dir(self.address)
        letters = self.table(beside, DEAD_LETTER_SCHEMA)
        records = len(rows) + len(dead)
        result = TaskResult(
            range=part, records=records, absent=part.offsets - records, dead_letters=len(dead),
            recorded=_page(partition, span, [*rows, *dead]).packed,
            files=(self.write(self.address, rows, partition, values=values),) if rows else (),
            dead_letter_files=(self.write(beside, dead, partition, DEAD_LETTER_SCHEMA),) if dead else (),
        )  # fmt: skip
        ranges = verify_results([part], [result], is_compacted=True)
        written = Written((result,), tuple(ranges)).keeping(store_at(self.directory, FS), "load")
        plan = ReloadPlan(earlier=(), replaced=(part,), lost=(), following={})
        options = LoadOptions(topic="events", table=self.address, bootstrap="127.0.0.1:1")
        report = ReloadReport(topic="events", table=self.address, replaced=written.ranges)
        lineage = {**lineage_of_reload(options, "load", report, 0), **written.recorded}
        replacement = Replacement(
            self.table(self.address), plan, written,
            lineage=lineage, load_id="load", fs=FS, accept_keyless=False, tasks=tasks,
        )  # fmt: skip
        replacement.commit_dead_letters(letters)
        return replacement.commit_rows().version

    def add(
        self,
        offsets: Sequence[int],
        partition: int = 0,
        lineage: Mapping[str, object] | None = None,
        address: str | None = None,
        values: Mapping[str, Sequence[object]] | None = None,
    ) -> None:
        """Commits rows that no load has in its lineage."""
        address = address or self.address
        files = [self.write(address, offsets, partition, values=values)] if offsets else []
        load_table(address, FS).commit(files, expected={}, transactions={}, lineage=lineage or {"kind": "other"})

    def remove(self, address: str | None = None, lineage: Mapping[str, object] | None = None, which: int = 0) -> None:
        """Takes a file out of the table."""
        table = load_table(address or self.address, FS)
        file = NamedFile(name=table.file_names()[which])
        table.commit([], removed=[file], expected={}, transactions={}, lineage=lineage or {"kind": "other"})

    def files(self) -> list[Path]:
        """Returns the paths of the table's files."""
        return [Path(path) for path in load_table(self.address, FS).files()]


def _page(partition: int, span: tuple[int, int], offsets: Sequence[int]) -> OffsetPage:
    found = intervals_of(np.array(sorted(set(offsets)), np.int64))
    return OffsetPage(partition, *span, packed(found, span[0]))
