"""Which partition a row goes to, which are late, and that hostile clocks make no million partitions."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.choices import LOADED
from millrace_pipelines.warehouse.load import task as module
from millrace_pipelines.warehouse.load.task import RowsWriter
from millrace_pipelines.warehouse.payload.event_time import NO_TIME, parse_event_time
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.payload import Payload
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.payload.split import Splitter

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
US = pa.timestamp("us", tz="UTC")


def placed(times, taken=None, *, arrived=NOON, data_type=US, **how):
    event_time = parse_event_time({"column": "at", **how})
    rows = pa.table({"at": pa.array(times, data_type), "timestamp": pa.array([arrived] * len(times), US)})
    return event_time, event_time.assign(rows, set() if taken is None else taken)


def test_days_and_hours():
    event_time, found = placed([NOON, datetime(1969, 12, 31, 23, tzinfo=UTC), None], earliest="1960-01-01")
    assert [event_time.partition_values(int(span)) for span in found.spans] == [
        {"event_date": "2013-06-01"},
        {"event_date": "1969-12-31"},
        {"event_date": None},
    ]
    event_time, found = placed([NOON], granularity="hour")
    assert event_time.partition_values(int(found.spans[0])) == {"event_hour": "2013-06-01 12:00:00"}
    event_time, found = placed([date(2013, 6, 1)], data_type=pa.date32())
    assert event_time.partition_values(int(found.spans[0])) == {"event_date": "2013-06-01"}
    assert found.refusals == []
    assert placed([None])[1].spans.tolist() == [NO_TIME]


def test_late_rows_are_counted_and_refused_where_asked():
    times = [NOON, NOON - timedelta(days=7), NOON - timedelta(days=7, microseconds=1), None]
    _, accepted = placed(times, late_after="7d")
    assert (accepted.late, accepted.refusals) == (1, [])
    _, refused = placed(times, late_after="7d", late="dead-letter")
    assert [(refusal.row, refusal.reason) for refusal in refused.refusals] == [(2, Reason.LATE)]
    assert placed(times, late_after="7d", late="dead-letter", arrived=None)[1].refusals == []


def test_times_out_of_range_are_refused():
    far = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), NOON]
    _, found = placed(far)
    assert [(refusal.row, refusal.reason) for refusal in found.refusals] == [
        (0, Reason.EVENT_TIME),
        (1, Reason.EVENT_TIME),
    ]


def test_a_task_writes_a_bounded_number_of_partitions():
    taken = set()
    days = [NOON + timedelta(days=number) for number in (3, 1, 3, 2, 5, 4)]
    _, found = placed(days, taken, max_partitions=3)
    assert [refusal.row for refusal in found.refusals] == [4, 5]
    assert {refusal.reason for refusal in found.refusals} == {Reason.PARTITIONS}
    assert len(taken) == 3
    _, again = placed(days, taken, max_partitions=3)
    assert [refusal.row for refusal in again.refusals] == [4, 5]


def envelope(values):
    count = len(values)
    columns = {
        "topic": ["t"] * count,
        "partition": pa.array([0] * count, pa.int32()),
        "offset": list(range(count)),
        "timestamp": pa.array([NOON] * count, US),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(count, ENVELOPE_SCHEMA.field("headers").type),
    }
    return pa.table(columns).cast(ENVELOPE_SCHEMA)


def test_files_of_many_partitions_stay_few_and_small_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PENDING_BYTES", 20_000)
    schema = parse_payload_schema('{"fields": [{"name": "at", "type": "timestamp"}], "event_time": {"column": "at"}}')
    payload = Payload(schema, schema.arrow)
    splitter = Splitter(payload, np.zeros(0, np.int64), "load", "ledger")
    values = [b'{"at": "2013-06-%02dT00:00:00Z"}' % (number % 20 + 1) for number in range(2000)] + [None, b"bad"]
    split = splitter.split(envelope(values))
    assert (split.rows.num_rows, split.dead_letter_count, split.dead_letters.column("reason").to_pylist()) == (
        2001,
        1,
        ["malformed"],
    )
    with RowsWriter(str(tmp_path), "load", 0, splitter, OsFileSystem(), compression=LOADED) as writer:
        writer.write(split.rows, split.spans)
        assert writer._pending_bytes <= 20_000
        files = writer.finish()
    assert sum(file.rows for file in files) == 2001
    by_day = {}
    for file in files:
        day = file.partition_values["event_date"]
        table = pq.read_table(tmp_path / file.name, partitioning=None)
        assert "event_date" not in table.column_names
        days = {at and at.date().isoformat() for at in table.column("at").to_pylist()}
        assert days == {day}
        by_day[day] = by_day.get(day, 0) + file.rows
    assert by_day == {None: 1, **{f"2013-06-{day:02d}": 100 for day in range(1, 21)}}


def _write_and_fail(directory, splitter, split):
    with RowsWriter(str(directory), "load", 0, splitter, OsFileSystem(), compression=LOADED) as writer:
        writer.write(split.rows, split.spans)
        assert list(directory.rglob("*.parquet"))
        {}["gone"]


def test_an_error_takes_all_files_of_a_task_away(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PENDING_BYTES", 1)
    schema = parse_payload_schema('{"fields": [{"name": "at", "type": "timestamp"}], "event_time": {"column": "at"}}')
    payload = Payload(schema, schema.arrow)
    splitter = Splitter(payload, np.zeros(0, np.int64), "load", "l")
    split = splitter.split(envelope([b'{"at": "2013-06-01"}', b'{"at": "2013-06-02"}']))
    with pytest.raises(KeyError, match="gone"):
        _write_and_fail(tmp_path, splitter, split)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_known_letters_stay_letters():
    schema = parse_payload_schema('{"fields": [{"name": "at", "type": "timestamp"}]}')
    splitter = Splitter(Payload(schema, schema.arrow), np.array([0, 2]), "load", "ledger")
    split = splitter.split(envelope([b"{}", b"{}", b"bad", b"bad"]))
    assert split.rows.column("offset").to_pylist() == [1]
    assert split.dead_letters.column("offset").to_pylist() == [3]
    assert split.dead_letter_count == 3
