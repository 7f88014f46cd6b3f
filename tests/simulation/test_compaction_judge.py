"""The judge of compaction tells a record that it could not see before from one that was changed."""

import pytest

from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.workloads.compaction_judge import CompactedHistory

KEY = TopicPartition("compacted", 0)


def batch(offset: int, key: bytes, value: bytes) -> bytes:
    return bytes(encode_batch([NewRecord(value, key=key, timestamp_ms=1000)], base_offset=offset))


@pytest.mark.parametrize(
    ("offset", "key", "value", "is_wrong"),
    [
        (0, b"a", b"first", False),
        (0, b"a", b"other", True),
        (1, b"a", b"superseded", False),
        (1, b"b", b"the newest", True),
    ],
    ids=["seen", "changed", "compacted before the first look", "nobody may have removed it"],
)
def test_a_record_that_only_a_damaged_log_had_is_one_with_a_newer_value(
    offset: int, key: bytes, value: bytes, *, is_wrong: bool
) -> None:
    anomalies: list[str] = []
    history = CompactedHistory(KEY, anomalies.append, None, delete_retention_ms=1000, now_ms=lambda: 1000)
    history.sees(0, batch(0, b"a", b"first"), "broker 1")
    history.sees(2, batch(2, b"a", b"third"), "broker 1")
    history.sees(offset, batch(offset, key, value), "broker 2")
    assert bool(anomalies) == is_wrong, anomalies
