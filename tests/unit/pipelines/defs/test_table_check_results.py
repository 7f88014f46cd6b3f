"""What each check of a table says, and when it passes."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.table_check_results import (
    DESCRIPTIONS,
    Drift,
    LetterCounts,
    Newest,
    Skipped,
    completeness,
    count_letters,
    dead_letters,
    drift_of,
    freshness,
    lag,
    load_completeness,
    newest_of,
    read_skipped,
    schema_drift,
    skipped_offsets,
    stored_files,
)
from millrace_pipelines.warehouse.completeness.audit import LoadAudit, audit_newest_load
from millrace_pipelines.warehouse.completeness.stored_files import Stored
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import RegistryError
from millrace_pipelines.warehouse.ledger.ledger import SKIPPED_APP_ID, publish_skipped
from millrace_pipelines.warehouse.payload.schema import read_payload_schema
from millrace_pipelines.warehouse.table.table import counted
from millrace_support.findings import told
from millrace_support.loads import FS, Loads
from millrace_support.small_tables import open_tables

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


@pytest.fixture
def loads(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 5), range(5), time_ms=1_000_000)
    return loads


def table_of(loads):
    return Table.load(loads.directory, FS)


def numbers(result):
    return {name: value.value for name, value in result.metadata.items() if isinstance(value, dg.IntMetadataValue)}


def test_each_check_has_a_name_and_a_description():
    assert set(DESCRIPTIONS) == set(Check)
    results = [
        load_completeness(LoadAudit()),
        completeness([]),
        stored_files(Stored(files=0, bytes=0, undigested=0, findings=())),
        skipped_offsets(Skipped()),
        dead_letters(LetterCounts(0, 0, 0, 0)),
        freshness(Newest(None, None), 0),
        lag({}),
        schema_drift(Drift()),
    ]
    assert [result.check_name for result in results] == list(Check)
    for result in results:
        assert result.passed
        assert result.description.endswith(".")


def test_a_complete_load(loads):
    loads.load((5, 10), [5, 6, 8], dead=[7])
    result = load_completeness(audit_newest_load(loads.directory))
    assert result.passed
    assert result.description == (
        "The 5 offsets of the newest load are 3 rows, 1 dead letters and 1 offsets without a record, each once."
    )
    assert numbers(result) == {"offsets": 5, "rows": 3, "dead letters": 1, "findings": 0, "table version": 2}


def test_an_incomplete_load(loads):
    loads.load((5, 8), [5, 6, 7])
    loads.add([5])
    audited = audit_newest_load(loads.directory)
    result, [finding] = load_completeness(audited), audited.findings
    assert (result.passed, result.severity) == (False, ERROR)
    assert told([finding]) == ["partition 0: 1 offsets are doubled: 5"]
    assert result.description == f"The audit has one finding: {finding}."
    assert result.metadata["details"].value.startswith("- partition 0: 1 offsets are doubled: 5, in ")


def test_a_load_whose_rows_were_not_counted_says_so():
    assert "were not counted" in load_completeness(LoadAudit(version=3, offsets=9)).description


def test_completeness_of_all():
    assert completeness([]).passed
    result = completeness(["partition 0: offsets 5-6 are missing", "partition 1: a_b"])
    assert not result.passed
    assert result.description.startswith("The audit has 2 findings; the first is: partition 0")
    assert result.metadata["details"].value.splitlines()[1] == "- partition 1: a\\_b"


def test_skipped_offsets(loads):
    assert read_skipped(loads.directory, FS) == Skipped()
    table = table_of(loads)
    lost = [
        {"partition": 0, "from_offset": 5, "until_offset": 9, "reason": "retention"},
        {"partition": 0, "from_offset": 9, "until_offset": None, "reason": "topic recreated"},
    ]
    lineage = {"kind": "load", "topic": "events", "topic_id": "id-1", "load_id": "l", "time_ms": 1, "lost": lost}
    expected, transactions = counted(table, SKIPPED_APP_ID)
    table.commit([], expected=expected, transactions=transactions, lineage=lineage)
    publish_skipped(table, FS)
    skipped = read_skipped(loads.directory, FS)
    assert skipped == Skipped(ranges=2, offsets=4, unknown=1)
    result = skipped_offsets(skipped)
    assert (result.passed, result.severity) == (False, WARN)
    assert result.description == (
        "The table goes on without 4 offsets in 2 ranges, of which 1 end at an unknown offset; 0 are allowed."
    )
    assert not skipped_offsets(skipped, allowed=4).passed
    assert skipped_offsets(skipped, allowed=5).passed


def test_dead_letters(loads):
    assert count_letters(table_of(loads), FS) == LetterCounts(5, 0, 5, 0)
    loads.load((5, 10), [5, 6, 8, 9], dead=[7])
    counts = count_letters(table_of(loads), FS)
    assert counts == LetterCounts(load_rows=4, load_letters=1, rows=9, waiting=1)
    result = dead_letters(counts)
    assert (result.passed, result.severity) == (False, WARN)
    assert result.description == (
        "1 of the 5 records of the newest load are dead letters (20.00%), and 1 of all 10 (10.00%); "
        "up to 1.00% is allowed."
    )
    assert not dead_letters(counts, max_share=0.19).passed
    assert dead_letters(counts, max_share=0.2).passed
    assert not dead_letters(LetterCounts(100, 0, 100, 50), max_share=0.2).passed


def test_how_new_a_table_is(loads):
    assert newest_of(table_of(loads)) == Newest(load_ms=1_000_000, record_ms=None)
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    loads.load((5, 7), [5, 6], time_ms=2_000_000, values={"timestamp": times})
    assert newest_of(table_of(loads)) == Newest(2_000_000, round(times[1].timestamp() * 1000))
    assert newest_of(Table.load_or_create(f"{loads.directory}-2", FS, schema=table_of(loads).schema, name="n",
                                          configuration={})) == Newest(None, None)  # fmt: skip


@pytest.mark.parametrize(
    ("newest", "bound", "passed"),
    [
        (Newest(None, None), None, True),
        (Newest(None, None), 10, False),
        (Newest(90_000, 0), 10, True),
        (Newest(89_000, 0), 10, False),
        (Newest(999_000, 999_000), 0, True),  # a producer's clock is ahead
    ],
)
def test_freshness(newest, bound, passed):
    result = freshness(newest, 100_000, max_load_age=None if bound is None else timedelta(seconds=bound))
    assert (result.passed, result.severity) == (passed, WARN)


def test_freshness_says_ages_and_bounds():
    result = freshness(Newest(40_000, None), 100_000, max_load_age=timedelta(seconds=30))
    assert result.description == (
        "The age of the newest load is 60 s; up to 30 s is allowed. The age of the newest record is unknown."
    )
    assert numbers(result) == {"age of the newest load in seconds": 60}


def test_lag():
    result = lag({0: 5, 1: -3, 2: 0})
    assert result.passed
    assert numbers(result) == {"lag": 5, "partitions behind": 1}
    assert lag({0: 5}, max_lag=5).passed
    late = lag({0: 5, 1: 1}, max_lag=5)
    assert (late.passed, late.severity) == (False, WARN)
    assert late.description == "The table lacks 6 readable offsets of the topic; 5 are allowed."
    gone = lag(None, max_lag=5)
    assert (gone.passed, gone.severity) == (False, ERROR)


@pytest.fixture
def declare(tmp_path):
    """Writes a schema file with fields of these types."""

    def write(**types):
        path = tmp_path / "schema.json"
        path.write_text(json.dumps({"fields": [{"name": name, "type": kind} for name, kind in types.items()]}))
        return str(path)

    return write


def test_schema_drift(tmp_path, declare):
    schema = read_payload_schema(declare(id="integer", name="string"))
    table = open_tables(str(tmp_path / "typed"), "events", "id-1", schema, FS).rows
    assert drift_of(table, None) == drift_of(table, declare(id="integer", name="string")) == Drift()

    drift = drift_of(table, declare(id="long", carrier="string"))
    assert drift == Drift(added=("carrier",), widened=("id",), undeclared=("name",))
    result = schema_drift(drift)
    assert (result.passed, result.severity) == (False, WARN)
    assert "column carrier is added by the next load" in result.description
    assert numbers(result) == {"columns to add": 1, "columns to widen": 1, "columns declared no longer": 1}

    gone = schema_drift(drift_of(table, declare(id="integer")))
    assert gone.passed
    assert gone.metadata["changes"].value == "- column name is declared no longer; it stays, null in new rows"

    refused = drift_of(table, declare(id="boolean", name="string"))
    result = schema_drift(refused)
    assert (result.passed, result.severity) == (False, ERROR)
    assert result.description.startswith("The next load stops: ")
    assert "id" in result.description


def test_a_schema_file_that_can_t_be_used_stops_the_next_load(loads, tmp_path):
    (tmp_path / "schema.json").write_text("{")
    assert drift_of(table_of(loads), str(tmp_path / "schema.json")).refused is not None
    assert drift_of(table_of(loads), str(tmp_path / "none.json")).refused is not None


def test_a_registry_that_does_not_answer_is_no_drift(loads, tmp_path):
    (tmp_path / "schema.json").write_text('{"format": "avro", "registry": "http://127.0.0.1:9"}')
    with pytest.raises(RegistryError):
        drift_of(table_of(loads), str(tmp_path / "schema.json"))
