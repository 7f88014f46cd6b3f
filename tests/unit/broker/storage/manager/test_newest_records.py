"""Retention after a start, where the newest record of a segment is not its last one: what is due goes, nothing else.

The files are new, as in a folder that was copied back, and the records of each segment are not in the order of time.
"""

import asyncio
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_broker.storage.segments.indexes import TimeIndex
from millrace_support.clock import ManualClock

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=7)
NOW_MS, DAY_MS = 1_700_000_000_000, 24 * 3600 * 1000
PER_SEGMENT = 6
RETENTION_DAYS = 7
AGES_DAYS = (9, 11, 10, 13, 12, 14)  # of the batches of a segment: the first one is the newest


def batch(number: int, newest_days: int) -> bytes:
    age_days = AGES_DAYS[number % PER_SEGMENT] - AGES_DAYS[0] + newest_days
    return bytes(encode_batch([NewRecord(b"v" * 100, timestamp_ms=NOW_MS - age_days * DAY_MS)]))


def started(path: Path) -> tuple[LogManager, LogMaintenance]:
    size = len(batch(0, 9)) * PER_SEGMENT
    settings = {
        "log.segment.bytes": str(size), "log.index.interval.bytes": "100", "log.roll.hours": "99999",
        "log.message.timestamp.before.max.ms": str(1 << 62),
    }  # fmt: skip
    clock = ManualClock(NOW_MS)
    logs = LogManager(OsFileSystem(), clock, [str(path)], settings, "cluster", 1)
    logs.start()
    logs.create(KEY, TOPIC_ID, {"retention.ms": str(RETENTION_DAYS * DAY_MS)})
    unused = cast("Any", None)
    return logs, LogMaintenance(logs, unused, unused, unused, clock, -1, MaintenanceCounts())


def written(path: Path, *newest_days: int) -> None:
    """Leaves a log of which each segment's newest record is so many days old, and an active one behind them."""
    logs, _ = started(path)
    log = logs.logs()[KEY]
    for days in newest_days:
        for number in range(PER_SEGMENT):
            log.append(batch(number, days), leader_epoch=0)
    assert [one.max_timestamp for one in log.segments] == [NOW_MS - days * DAY_MS for days in newest_days]
    log.high_watermark = log.log_end_offset
    logs.close()


def reasons(logs: LogManager, maintenance: LogMaintenance) -> tuple[str, ...]:
    log = logs.logs()[KEY]
    log.high_watermark = log.log_end_offset
    (report,) = asyncio.run(maintenance.apply_retention())
    return report.reasons


def unknown(log: Log) -> list[int]:
    return [one.base_offset for one in log.segments if not one.is_newest_known]


def test_what_is_too_old_goes_though_its_file_is_new(tmp_path: Path) -> None:
    written(tmp_path, 9, 8, 6, 9)
    logs, maintenance = started(tmp_path)
    assert unknown(logs.logs()[KEY]) == [0, 6, 12], "the newest one is read at the start"
    assert reasons(logs, maintenance) == ("older than retention.ms",) * 2
    assert unknown(logs.logs()[KEY]) == [12], "it is not asked for"
    logs.close()


def test_nothing_is_read_where_nothing_would_go(tmp_path: Path) -> None:
    written(tmp_path, 6, 9, 9)
    logs, maintenance = started(tmp_path)
    assert reasons(logs, maintenance) == ()
    assert unknown(logs.logs()[KEY]) == [0, 6]
    logs.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_time_index_that_lacks_an_entry_deletes_nothing_that_is_younger(tmp_path: Path, lost: int) -> None:
    """The newest record is in the middle of the segment, where the second one of two entries names it."""
    logs, _ = started(tmp_path)
    log = logs.logs()[KEY]
    for days in (14, 13, 6, 15, 15, 15) * 2:
        log.append(batch(0, days), leader_epoch=0)
    log.high_watermark = log.log_end_offset
    path = log.segments[0].time_index.path
    logs.close()
    content = Path(path).read_bytes()
    assert len(content) == 2 * TimeIndex.ENTRY.size
    kept = [entry for slot, entry in enumerate(TimeIndex.ENTRY.iter_unpack(content)) if slot != lost]
    Path(path).write_bytes(b"".join(TimeIndex.ENTRY.pack(*entry) for entry in kept))
    logs, maintenance = started(tmp_path)
    assert reasons(logs, maintenance) == ()
    assert logs.logs()[KEY].segments[0].max_timestamp == NOW_MS - 6 * DAY_MS
    logs.close()
