"""Whatever a log is asked after one of its files was cut, it answers rightly or refuses with an error of the tree.

The file is cut at every third byte, while the log is open. In some logs batches leave out offsets, as compaction does.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

from millrace.errors import MillraceError
from millrace.fs import read_file
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
RECORDS, BATCHES, STEP = 2, 9, 3
CODECS = (Codec.NONE, Codec.ZSTD)


def filled(fs: CrashFileSystem, codec: Codec, *, has_gaps: bool) -> tuple[Log, dict[int, bytes]]:
    config = LogConfig(
        segment_bytes=400, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0,
        cleanup_policy="compact" if has_gaps else "delete",
    )  # fmt: skip
    log, written = Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), config), dict[int, bytes]()
    for number in range(BATCHES):
        base = number * (STEP if has_gaps else RECORDS)
        records = [
            NewRecord(b"value %d" % one, b"%d" % one, timestamp_ms=NOW_MS + one) for one in range(base, base + RECORDS)
        ]
        log.append_as_follower(bytes(encode_batch(records, base_offset=base, codec=codec)), leader_epoch=1)
        written |= {base + each: one.value or b"" for each, one in enumerate(records)}
    log.flush()
    assert len(log.segments) > 2
    return log, written


def questions(log: Log) -> list[Callable[[], object]]:
    end = log.log_end_offset
    asked: list[Callable[[], object]] = [
        log.offset_of_max_timestamp, log.newest_timestamp_ms, log.verify, lambda: log.aborted_transactions(0, end),
    ]  # fmt: skip
    asked += [lambda each=each: log.offset_for_timestamp(NOW_MS + each) for each in range(end)]
    asked += [lambda each=each: log.end_if_truncated(each) for each in range(end)]
    asked += [lambda each=each: log.scrub(each, lambda _: None) for each in log.segments]
    return asked


@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.usefixtures("without_logs")
def test_what_is_asked_of_a_log_whose_file_is_cut(
    was_read: bool, suffix: str, codec: Codec, has_gaps: bool, segment: int
) -> None:
    fs = fs_with_folder(FOLDER)
    log, written = filled(fs, codec, has_gaps=has_gaps)
    path = log.segments[segment].path.replace(".log", suffix)
    log.close()
    kept = fs.after_kill()
    for size in range(0, len(read_file(kept, path)), 3):
        fs = kept.after_kill()
        log = Log(
            fs,
            ManualClock(NOW_MS),
            FOLDER,
            TopicPartition("t", 0),
            log.config,
            clean=True,
            recovery_point=log.log_end_offset,
        )
        for offset, max_bytes in itertools.product(range(log.log_end_offset) if was_read else (), (1, 1 << 20)):
            log.read(offset, max_bytes, up_to_offset=log.log_end_offset)
        fd = fs.open(path)
        fs.truncate(fd, size)
        fs.close(fd)
        for offset, max_bytes in itertools.product(range(log.log_end_offset), (1, 1 << 20)):
            with suppress(MillraceError):
                found = {
                    one.offset: one.value
                    for one in decode_records(log.read(offset, max_bytes, up_to_offset=log.log_end_offset))
                }
                assert found.items() <= written.items()
        for ask in questions(log):
            with suppress(MillraceError):
                ask()
        log.abandon()
