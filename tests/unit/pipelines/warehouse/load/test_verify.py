"""The tasks' answers against the plan, and the audit against tables that lie."""

from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange
from millrace_pipelines.warehouse.load.report import (
    LoadedRange,
    exact_gaps,
    missing_ranges,
    verify_results,
    with_epochs,
)
from millrace_pipelines.warehouse.load.task import TaskResult
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter
from millrace_support.findings import told

FS = OsFileSystem()
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id"}


def result(from_offset, until_offset, rows=None, dead_letters=0, *, partition=0, records=None):
    offsets = until_offset - from_offset
    rows = offsets - dead_letters if rows is None else rows
    absent = max(offsets - rows - dead_letters, 0)
    file = DataFile(
        name="part",
        size_bytes=1,
        rows=rows,
        min_offset=from_offset,
        max_offset=until_offset - 1,
    )
    return TaskResult(
        range=OffsetRange(partition, from_offset, until_offset),
        records=rows + dead_letters if records is None else records,
        absent=absent,
        gaps=((until_offset - absent, until_offset),) if absent else (),
        dead_letters=dead_letters,
        value_bytes=0,
        files=(file,) if rows else (),
    )


def test_an_answer_survives_the_way_to_the_driver():
    answer = result(3, 9, dead_letters=2)
    assert TaskResult.from_json(answer.to_json()) == answer
    empty = result(3, 9, rows=0)
    assert TaskResult.from_json(empty.to_json()) == empty


def test_markers_and_aborted_offsets_are_told_apart_from_compacted_ones():
    results = [replace(result(0, 20, rows=10), control=2, aborted=3, absent=5)]
    [loaded] = verify_results([OffsetRange(0, 0, 20)], results, is_compacted=True)
    assert (loaded.control, loaded.aborted, loaded.compacted, loaded.absent) == (2, 3, 5, 10)


@pytest.mark.parametrize("wrong", [{"control": 1}, {"aborted": 1}, {"absent": 1}])
def test_offsets_that_are_accounted_for_twice_or_not_at_all_are_refused(wrong):
    with pytest.raises(LoadFailedError, match="not all of these offsets, each once"):
        verify_results([OffsetRange(0, 0, 20)], [replace(result(0, 20), **wrong)], is_compacted=True)
    with pytest.raises(LoadFailedError, match="not all of these offsets, each once"):
        verify_results([OffsetRange(0, 0, 20)], [replace(result(0, 20, rows=10), absent=0)], is_compacted=True)


def test_what_is_absent_in_a_log_that_is_not_compacted_is_missing():
    results = [result(10, 20, rows=7), result(0, 10, rows=9)]
    [loaded] = verify_results([OffsetRange(0, 0, 20)], results, is_compacted=False)
    assert (loaded.compacted, loaded.missing, loaded.absent) == (0, 4, 4)
    assert missing_ranges(results) == [LostRange(0, 9, 10, "missing"), LostRange(0, 17, 20, "missing")]


def test_a_gap_that_stands_for_many_is_not_taken_for_one():
    exact = replace(result(0, 20, rows=16), gaps=((3, 5), (9, 11)))
    coarse = replace(result(20, 40, rows=16), gaps=((23, 25), (29, 35)))
    assert exact_gaps([exact, coarse]) == [(0, 3, 5), (0, 9, 11), (0, 23, 25)]
    assert exact_gaps([replace(exact, is_proven=False)]) == []


def test_a_reader_that_can_not_tell_why_leaves_all_to_compaction():
    results = [replace(result(0, 20, rows=17), is_proven=False)]
    [loaded] = verify_results([OffsetRange(0, 0, 20)], results, is_compacted=False)
    assert (loaded.compacted, loaded.missing, missing_ranges(results)) == (3, 0, [])


def test_an_entry_takes_the_epoch_of_the_last_batch_of_its_partition():
    following = {0: LedgerEntry(0, 20), 1: LedgerEntry(0, 5, 3)}
    results = [replace(result(10, 20), leader_epoch=7), replace(result(0, 10), leader_epoch=6)]
    entries = with_epochs(following, results)
    assert {partition: entry.leader_epoch for partition, entry in entries.items()} == {0: 7, 1: 3}


def test_good_answers_are_added_up_by_partition():
    ranges = [OffsetRange(0, 0, 20), OffsetRange(1, 5, 6)]
    results = [result(10, 20, rows=7, dead_letters=1), result(5, 6, partition=1), result(0, 10)]
    assert verify_results(ranges, results, is_compacted=True) == [
        LoadedRange(0, 0, 20, 17, 1, 0, 0, 2),
        LoadedRange(1, 5, 6, 1, 0, 0, 0, 0),
    ]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "tasks end at 0, not at 20"),
        ([result(0, 10)], "tasks end at 10, not at 20"),
        ([result(0, 10), result(11, 20)], "do not meet at offset 10"),
        ([result(0, 10), result(5, 20)], "do not meet at offset 10"),
        ([result(0, 10), result(0, 10), result(10, 20)], "do not meet at offset 10"),
        ([result(0, 20, records=19)], "19 records were read, 20 rows"),
        ([result(0, 20, rows=21)], "21 records, 0 markers, 0 aborted, 0 absent"),
        ([replace(result(0, 20), files=result(0, 21, rows=20).files)], "offsets outside 0-19"),
    ],
)
def test_answers_that_do_not_add_up_are_refused(results, message):
    with pytest.raises(LoadFailedError, match=message):
        verify_results([OffsetRange(0, 0, 20)], results, is_compacted=True)


def write(directory, offsets, schema=ENVELOPE_SCHEMA, partition=0):
    columns = {name: pa.nulls(len(offsets), schema.field(name).type) for name in schema.names}
    columns |= {"partition": pa.array([partition] * len(offsets), pa.int32()), "offset": pa.array(offsets, pa.int64())}
    with DataFileWriter(directory, "load", 0, schema, FS) as writer:
        writer.write(pa.table(columns, schema=schema))
        return writer.finish()


def committed(directory, offsets, span, *, dead_letters=(), lost=(), absent=0, schema=ENVELOPE_SCHEMA, partition=0):
    table = Table.load_or_create(directory, FS, schema=schema, name="events", configuration=PROPERTIES)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(*span)})
    loaded = LoadedRange(0, *span, len(offsets), len(dead_letters), 0, 0, absent)
    lineage = {"ranges": [asdict(loaded)], "lost": [lost_span._asdict() for lost_span in lost]}
    files = [write(directory, offsets, schema, partition)] if offsets else []
    table.commit(files, expected=expected, transactions=transactions, lineage=lineage)
    if dead_letters:
        committed(dead_letters_dir(directory), dead_letters, span, schema=DEAD_LETTER_SCHEMA)


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "table")


def test_a_complete_table_has_no_findings(directory):
    committed(directory, [5, 6, 8], (5, 10), dead_letters=[7], absent=1)
    committed(directory, [12], (12, 13), lost=[OffsetRange(0, 10, 12)])
    assert audit(directory) == []


def test_dead_letters_ahead_of_the_ledger_are_no_finding(directory):
    committed(directory, [0], (0, 1))
    committed(dead_letters_dir(directory), [1], (0, 2), schema=DEAD_LETTER_SCHEMA)
    assert audit(directory) == []


def test_every_lie_is_found(directory):
    committed(directory, [0, 1, 1], (0, 3))
    committed(directory, [2, 3, 9], (4, 6))
    assert set(told(audit(directory))) == {
        "partition 0: 1 offsets are doubled: 1",
        "partition 0, outside the ledger's offsets 0-5: 1 rows: 9",
        "partition 0, of no load: 1 rows: 3",
        "partition 0: a load began at 4, the one before ended at 3",
        "partition 0, offsets 4-5: 0 rows and dead letters, the loads say 3; not there: 4, 5",
        "partition 0, offsets 4-5: the load accounts for 3 of 2 offsets",
    }


def test_a_row_that_is_a_dead_letter_too_is_found(directory):
    committed(directory, [0, 1], (0, 2), dead_letters=[1])
    assert "partition 0: 1 offsets are doubled: 1" in told(audit(directory))


def test_rows_of_an_unknown_partition_are_found(directory):
    committed(directory, [0], (0, 1), partition=7)
    assert "partition 7, which the ledger doesn't know: 1 rows: 0" in audit(directory)
