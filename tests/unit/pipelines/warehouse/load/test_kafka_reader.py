"""What Spark's Kafka connector gives becomes what Millrace's own reader gives of the same records."""

import pyarrow as pa
import pytest

from millrace.records.arrow import decode_to_arrow
from millrace.records.arrow_columns import RECORD_SCHEMA
from millrace.records.record import NewRecord, encode_batch
from millrace.times import MAX_DATETIME_MS, MIN_DATETIME_MS
from millrace_pipelines.warehouse.load.jobs import _records

TIMES = [-1, 0, -2, 1_700_000_000_000, MIN_DATETIME_MS, MAX_DATETIME_MS, MIN_DATETIME_MS - 1, MAX_DATETIME_MS + 1]
HEADERS = [(), (("a", b"1"), ("é", None)), (("", b""),)]


@pytest.mark.parametrize("first", [0, 3])
def test_columns_of_the_connector_are_those_of_the_own_reader(first):
    records = [NewRecord(b"v", b"k", time_ms, HEADERS[place % 3]) for place, time_ms in enumerate(TIMES)]
    [own] = decode_to_arrow(encode_batch(records), from_offset=first)
    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    columns = [
        pa.array([0] * len(records), pa.int32()),
        pa.array(range(len(records)), pa.int64()),
        pa.array([time_ms * 1000 for time_ms in TIMES], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, RECORD_SCHEMA.field("headers").type),
    ]
    found = _records(pa.RecordBatch.from_arrays(columns, names=["partition", *RECORD_SCHEMA.names]).slice(first))
    found.validate(full=True)
    assert found.equals(own)
    assert found.column("timestamp_ms").null_count == len(found) - 2
