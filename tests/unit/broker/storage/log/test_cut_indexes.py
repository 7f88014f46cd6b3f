"""An index file that is cut while its log is open costs time, never an answer."""

import os
from pathlib import Path

import pytest

from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock

BATCHES = 40


@pytest.fixture
def log(tmp_path: Path) -> Log:
    one = encode_batch([NewRecord(b"v" * 10, timestamp_ms=0)])
    config = LogConfig(retention_ms=-1, index_interval_bytes=1, segment_bytes=len(one) * BATCHES)
    log = Log(OsFileSystem(), ManualClock(now_ms=10_000), str(tmp_path), TopicPartition("t", 0), config, clean=False)
    for time in range(BATCHES + 1):
        log.append(encode_batch([NewRecord(b"v" * 10, timestamp_ms=1000 + time)]), leader_epoch=0)
    log.flush()
    assert [one.is_sealed for one in log.segments] == [True, False]
    return log


def first_read(log: Log, offset: int) -> int:
    return next(decode_records(log.read(offset, 100, up_to_offset=BATCHES))).offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("kept", [0.0, 0.25, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("odd", [0, 1, 7])
def test_what_an_index_has_lost_is_found_without_it(
    log: Log, tmp_path: Path, suffix: str, kept: float, odd: int
) -> None:
    path = tmp_path / f"{0:020d}{suffix}"
    os.truncate(path, min(int(path.stat().st_size * kept) // 12 * 12 + odd, path.stat().st_size))
    for offset in range(BATCHES):
        assert log.offset_for_timestamp(1000 + offset) == (1000 + offset, offset)
        assert first_read(log, offset) == offset
    log.truncate_to(BATCHES // 2)
    assert log.log_end_offset == BATCHES // 2
    assert first_read(log, BATCHES // 2 - 1) == BATCHES // 2 - 1
