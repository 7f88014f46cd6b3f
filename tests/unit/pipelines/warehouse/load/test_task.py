"""What a task holds in memory, and what it answers of blocks that hold no records."""

import numpy as np
import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace.records.arrow_columns import RECORD_SCHEMA
from millrace_pipelines.spark.read import NO_RECORDS, ReadBlock
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.task import LoadSpec, load_range
from millrace_pipelines.warehouse.table.lineage import unpacked

FS = OsFileSystem()
ROW_GROUP_BYTES = 4 << 20
RECORDS = 1000
VALUE_BYTES = 1000


def spec(directory):
    return LoadSpec(
        load_id="load",
        topic="events",
        table=str(directory),
        dead_letters_table=str(directory),
        payload=None,
    )


def block(first):
    values = pa.array(np.random.default_rng(first).bytes(VALUE_BYTES) for _ in range(RECORDS))
    columns = {name: pa.nulls(RECORDS, RECORD_SCHEMA.field(name).type) for name in RECORD_SCHEMA.names}
    columns |= {"offset": pa.array(range(first, first + RECORDS)), "value": values}
    return ReadBlock(pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA))


@pytest.mark.parametrize("blocks", [20, 80])
def test_memory_is_that_of_a_row_group_however_long_the_range(tmp_path, monkeypatch, blocks):
    monkeypatch.setattr("millrace_pipelines.warehouse.table.files.ROW_GROUP_BYTES", ROW_GROUP_BYTES)
    held, before = [], pa.total_allocated_bytes()

    def read(partition, from_offset, until_offset):
        for first in range(from_offset, until_offset, RECORDS):
            held.append(pa.total_allocated_bytes() - before)
            yield block(first)

    span = OffsetRange(0, 0, blocks * RECORDS)
    result = load_range(span, spec(tmp_path), read, task=0, fs=FS)
    assert result.rows == span.offsets
    assert max(held) < 3 * ROW_GROUP_BYTES < blocks * RECORDS * VALUE_BYTES


def test_offsets_passed_over_are_added_up_and_the_epoch_is_the_last(tmp_path):
    def read(*span):
        yield ReadBlock(NO_RECORDS, control=1, aborted=2, leader_epoch=4)
        yield block(10)
        yield ReadBlock(NO_RECORDS, control=1, aborted=3, leader_epoch=5)

    result = load_range(OffsetRange(0, 0, 2000), spec(tmp_path), read, task=0, fs=FS)
    assert (result.records, result.control, result.aborted, result.leader_epoch) == (RECORDS, 2, 5, 5)
    assert (result.files[0].min_offset, result.files[0].max_offset) == (10, 10 + RECORDS - 1)
    assert unpacked(result.recorded, 0).tolist() == [[10, 10 + RECORDS]]


def test_a_range_whose_offsets_are_all_records_keeps_no_offsets(tmp_path):
    blocks = [block(0), block(RECORDS)]
    result = load_range(OffsetRange(0, 0, 2 * RECORDS), spec(tmp_path), lambda *_: iter(blocks), task=0, fs=FS)
    assert (result.records, result.recorded) == (2 * RECORDS, "")


def test_a_range_without_records_makes_no_file(tmp_path):
    result = load_range(OffsetRange(0, 0, 5), spec(tmp_path), lambda *_: iter([]), task=0, fs=FS)
    assert (result.files, result.records, list(tmp_path.iterdir())) == ((), 0, [])
    assert unpacked(result.recorded, 0).tolist() == []
