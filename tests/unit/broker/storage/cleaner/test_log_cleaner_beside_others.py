"""While a log is compacted it is read and appended to, cut by retention and by truncation, and the run is stopped."""

import threading
import uuid
from collections.abc import Sequence

import pytest

from millrace_broker.storage import CleanerConfig, CompactionReport, Log, LogCleaner, LogManager, TopicPartition
from millrace_broker.storage.segments.segment import LogSegment
from millrace_support.compacted_logs import COMPACT, Store, T, fill, last_values, put, records
from millrace_support.crash_fs import CrashFileSystem


def test_a_reader_that_holds_a_replaced_segment_finishes() -> None:
    store = Store()
    log = store.log()
    fill(log, 20, keys=2)
    segment = log.closed_segments[0]
    first = segment.locate(0, 10_000, segment.next_offset, at_least_one=True)
    expected = segment.read_at(first.position, first.size_bytes)
    assert segment.retain()
    store.compact()
    log.remove_deleted()
    assert segment not in log.closed_segments
    assert segment.locate(0, 10_000, segment.next_offset, at_least_one=True)[:2] == first[:2]
    assert segment.read_at(first.position, first.size_bytes) == expected
    segment.release()
    assert not segment.retain()


def test_compacted_and_deleted_logs_lose_old_segments_too() -> None:
    store = Store()
    log = store.log(cleanup_policy="compact,delete", retention_ms="50000")
    fill(log, 40, keys=2)
    store.compact()
    only_compacted = store.log(TopicPartition("c", 0), retention_ms="50000", retention_bytes="1")
    fill(only_compacted, 40, keys=2)
    segments = len(only_compacted.segments)
    list(store.manager.retention())
    assert log.log_start_offset == log.log_end_offset
    assert len(only_compacted.segments) == segments


def test_a_segment_that_holds_only_superseded_records_goes_by_time_too_and_is_no_max_timestamp() -> None:
    store = Store()
    log = store.log(cleanup_policy="compact,delete", retention_ms="500000")
    put(log, *[("a", "x" * 100)] * 4, at=990_000)
    first = log.closed_segments[0]
    put(log, *[("a", "x" * 100)] * 8, at=980_000)
    store.compact()
    assert log.closed_segments[0].base_offset == first.base_offset
    assert log.offset_of_max_timestamp() == (980_000, records(log)[0].offset)
    store.clock.advance(490_001)
    log.apply_retention()
    assert log.log_start_offset > first.base_offset


def test_retention_while_a_log_is_compacted_makes_the_pass_end() -> None:
    store = Store()
    log = store.log(cleanup_policy="compact,delete", retention_bytes="1")
    fill(log, 60, keys=60)
    group = log.closed_segments[:2]
    log.apply_retention()
    from millrace_broker.storage.segments.segment import LogSegment

    new = LogSegment(store.fs, log.directory, group[0].base_offset, log.config, ".cleaned")
    assert not log.replace_segments(group, new, truncations=0)


def test_stop_ends_a_run_and_leaves_the_log_as_it_was() -> None:
    store = Store(config=CleanerConfig(bytes_per_second=1))
    log = store.log()
    fill(log, 40, keys=2)
    before = records(log)
    run = threading.Thread(target=store.cleaner.run, kwargs={"force": True})
    run.start()
    store.cleaner.stop()
    run.join(60)
    assert not run.is_alive()
    assert records(log) == before
    assert store.cleaner.run(force=True) == []
    assert not [name for name in store.fs.listdir(log.directory) if name.endswith(".cleaned")]


class DeletingFileSystem(CrashFileSystem):
    """A disk on which a log is deleted by somebody else, once so many files were opened or read."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.delete = 0, lambda: None

    def open(self, path, *, create=False):
        self._pass()
        return super().open(path, create=create)

    def pread(self, fd, length, position):
        self._pass()
        return super().pread(fd, length, position)

    def _pass(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.delete()


@pytest.mark.parametrize("after", range(1, 41))
def test_a_log_that_is_deleted_meanwhile_is_no_failure(after: int, caplog) -> None:
    store = Store(fs := DeletingFileSystem())
    log, other = store.log(), store.log(TopicPartition("u", 0))
    fill(log, 20, keys=2)
    fill(other, 20, keys=2)
    for each in log, other:
        each.flush()  # as another thread would wait for a flush
    fs.left, fs.delete = after, lambda: store.manager.delete(T)
    reports = {(report.topic, report.partition): report for report in store.cleaner.run(force=True)}
    assert fs.left <= 0
    assert store.cleaner.failing == ()
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []
    assert not reports["u", 0].error


def test_appends_and_reads_go_on_beside_a_compaction(tmp_path) -> None:
    from millrace.clock import SystemClock
    from millrace.fs import OsFileSystem

    manager = LogManager(OsFileSystem(), SystemClock(), [str(tmp_path)], {}, "c" * 22, 1)
    manager.start()
    log = manager.create(T, uuid.UUID(int=1), COMPACT | {"segment.bytes": "4000"})
    cleaner = LogCleaner(OsFileSystem(), SystemClock(), manager, CleanerConfig())
    reports: list[CompactionReport] = []
    done = threading.Event()

    def compact() -> None:
        while not done.is_set():
            reports.extend(cleaner.run(force=True))

    worker = threading.Thread(target=compact)
    worker.start()
    try:
        for _ in range(150):
            fill(log, 10, keys=7)
            found = records(log)
            assert last_values(found) == {
                b"k%d" % (number % 7): b"%d" % number for number in range(log.log_end_offset - 7, log.log_end_offset)
            }
            log.release_replaced()
    finally:
        done.set()
        worker.join(120)
    assert not [report.error for report in reports if report.error]
    assert sum(report.passes for report in reports) > 1
    assert log.verify().findings == ()
    manager.close()


def test_what_is_appended_behind_a_truncation_is_dirty() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    store.compact()
    store.manager.truncate_to({T: 11})
    end = log.log_end_offset
    assert f"t 0 {end}" in store.checkpoint()
    fill(log, 40, keys=3)
    store.compact()
    closed = [record for record in records(log) if record.offset < log.segments.active.base_offset]
    assert len(closed) == len({record.key for record in closed}) == 3
    again = Store(store.fs.after_kill())
    assert records(again.log()) == records(log)


def test_a_pass_that_meets_a_truncation_ends_and_the_log_is_compacted_again() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    replace = log.replace_segments

    def truncate_first(self: Log, old: Sequence[LogSegment], new: LogSegment, *, truncations: int) -> bool:
        store.manager.truncate_to({T: 5})
        return replace(old, new, truncations=truncations)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "replace_segments", truncate_first)
        (report,) = store.cleaner.run(force=True)
        assert report.passes == 0
    assert [record.value for record in records(log)] == [b"%d" % number for number in range(log.log_end_offset)]
    fill(log, 30, keys=2)
    assert store.compact()[0].passes == 1
