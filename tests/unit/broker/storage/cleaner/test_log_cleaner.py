import logging
import threading
import uuid
from collections.abc import Sequence

import pytest

from millrace.errors import InvalidRecordError, OutOfOrderSequenceError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, CompactionReport, Log, LogCleaner, LogManager, TopicPartition
from millrace_broker.storage.cleaner.batches import CleaningRules
from millrace_broker.storage.cleaner.cleaner import SegmentRewriter, fill_map
from millrace_broker.storage.cleaner.offset_map import OffsetMap
from millrace_broker.storage.cleaner.transactions import CleanedTransactions
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.throttle import Throttle
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

T = TopicPartition("t", 0)
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "index.interval.bytes": "0",
    "delete.retention.ms": "5000",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0.5",
}


class Store:
    """A manager with a cleaner, on a disk in memory."""

    def __init__(self, fs: CrashFileSystem | None = None, config: CleanerConfig | None = None) -> None:
        self.fs = fs or CrashFileSystem()
        self.clock = ManualClock(1_000_000)
        self.manager = LogManager(self.fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.cleaner = LogCleaner(self.fs, self.clock, self.manager, config or CleanerConfig())

    def log(self, topic_partition: TopicPartition = T, **settings: str) -> Log:
        properties = COMPACT | {name.replace("_", "."): value for name, value in settings.items()}
        return self.manager.create(topic_partition, uuid.UUID(int=1), properties)

    def compact(self, *, force: bool = True) -> list[CompactionReport]:
        reports = self.cleaner.run(force=force)
        self.manager.release_replaced()
        assert [report.error for report in reports] == [""] * len(reports)
        return reports

    def checkpoint(self) -> str:
        fd = self.fs.open("/data/cleaner-offset-checkpoint")
        try:
            return self.fs.pread(fd, 1000, 0).decode()
        finally:
            self.fs.close(fd)


def put(log: Log, *pairs: tuple[str, str | None], at: int = 900_000, codec: Codec = Codec.NONE) -> None:
    for key, value in pairs:
        record = NewRecord(None if value is None else value.encode(), key=key.encode(), timestamp_ms=at)
        log.append(encode_batch([record], codec=codec), leader_epoch=0)


def fill(log: Log, count: int, keys: int) -> None:
    start = log.log_end_offset
    put(log, *((f"k{number % keys}", f"{number}") for number in range(start, start + count)))


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while data := log.read(offset, 500, up_to_offset=log.log_end_offset):
        found += [record for record in decode_records(data) if record.offset >= offset]
        offset = [header for _, header in walk(data)][-1].next_offset
    assert offset == log.log_end_offset
    return found


def last_values(found: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in found}


def test_closed_segments_hold_each_key_once_and_the_log_reads_as_before() -> None:
    store = Store()
    log = store.log()
    fill(log, 60, keys=3)
    before = records(log)
    active_base = log.closed_segments[-1].next_offset
    (report,) = store.compact()
    after = records(log)
    assert last_values(after) == last_values(before)
    assert [record.offset for record in after if record.offset < active_base] == [
        active_base - 3, active_base - 2, active_base - 1
    ]  # fmt: skip
    assert set(after) <= set(before)
    assert (report.passes, report.records_kept) == (1, 3)
    assert report.records_dropped == active_base - 3
    assert report.bytes_after < report.bytes_before
    assert log.verify().findings == ()
    assert store.checkpoint() == f"0\n1\nt 0 {active_base}\n"


def test_offsets_in_a_gap_read_what_comes_next() -> None:
    store = Store()
    log = store.log()
    fill(log, 60, keys=3)
    store.compact()
    kept = [record.offset for record in records(log)]
    for offset in range(log.log_end_offset):
        position, found = offset, []
        while not found:
            data = log.read(position, 1, up_to_offset=log.log_end_offset)
            (header,) = [header for _, header in walk(data)]
            assert header.last_offset >= position
            found = [record.offset for record in decode_records(data) if record.offset >= offset]
            position = header.next_offset
        assert found[0] == next(each for each in kept if each >= offset)


def test_a_log_is_compacted_when_it_is_dirty_enough() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    assert len(store.compact(force=False)) == 1
    assert store.compact(force=False) == []
    put(log, *((f"other {number}", "x" * 30) for number in range(2)))
    assert store.compact(force=False) == []


def test_a_log_is_compacted_when_its_oldest_dirty_record_is_too_old() -> None:
    store = Store()
    log = store.log(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="150000")
    fill(log, 20, keys=2)
    assert store.compact(force=False) == []
    store.clock.advance(50_001)
    assert len(store.compact(force=False)) == 1


@pytest.mark.parametrize("first_ms", [-1, 0, 2_000_000])
def test_the_oldest_dirty_record_need_not_be_the_first(first_ms: int) -> None:
    store = Store()
    log = store.log(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="150000")
    put(log, *((f"k{number}", "v" * 30) for number in range(20)), at=first_ms)
    put(log, *((f"k{number}", "w" * 30) for number in range(20)), at=900_000)
    assert store.compact(force=False) == []
    store.clock.advance(50_001)
    [report] = store.compact(force=False)
    assert {one.reason for one in report.by_segment} == {"older than max.compaction.lag.ms"}


def test_max_compaction_lag_closes_segments_in_time() -> None:
    log = Store().log(max_compaction_lag_ms="1000")
    put(log, ("a", "1"), at=0)
    put(log, ("a", "2"), at=1000)
    assert log.segment_count == 1
    put(log, ("a", "3"), at=1001)
    assert log.segment_count == 2


def test_young_records_wait() -> None:
    store = Store()
    log = store.log(min_compaction_lag_ms="200000")
    fill(log, 20, keys=2)
    assert store.compact()[0].passes == 0
    store.clock.advance(100_000)
    assert store.compact()[0].passes == 1


def test_the_dirtiest_log_comes_first_and_others_are_left_alone() -> None:
    store = Store()
    fill(store.log(TopicPartition("a", 0)), 40, keys=2)
    store.compact()
    fill(store.log(TopicPartition("a", 0)), 10, keys=2)
    fill(store.log(TopicPartition("b", 0)), 10, keys=2)
    fill(store.log(TopicPartition("c", 0), cleanup_policy="delete"), 40, keys=2)
    assert [report.topic for report in store.compact()] == ["b", "a"]


def test_more_keys_than_fit_take_several_passes() -> None:
    store = Store(config=CleanerConfig(dedupe_buffer_bytes=24 * 20))
    log = store.log()
    fill(log, 200, keys=60)
    before = records(log)
    (report,) = store.compact()
    assert report.passes > 3
    active_base = log.closed_segments[-1].next_offset
    keys = [record.key for record in records(log) if record.offset < active_base]
    assert len(keys) == len(set(keys)) == 60
    assert last_values(records(log)) == last_values(before)
    assert log.verify().findings == ()


def test_other_limits_hold_from_the_next_run_on() -> None:
    store = Store(config=CleanerConfig(dedupe_buffer_bytes=24 * 20))
    fill(store.log(), 200, keys=60)
    store.cleaner.reconfigure(CleanerConfig())
    (report,) = store.compact()
    assert report.passes == 1


def test_a_pass_may_begin_inside_a_batch() -> None:
    store = Store(config=CleanerConfig(dedupe_buffer_bytes=1))
    log = store.log(segment_bytes="2000")
    for first in range(0, 60, 6):
        batch = [NewRecord(b"x" * 30, key=b"%d" % (number * 7 % 12)) for number in range(first, first + 6)]
        log.append(encode_batch(batch), leader_epoch=0)
    (report,) = store.compact()
    assert report.passes > 5
    active_base = log.closed_segments[-1].next_offset
    assert [record.offset for record in records(log) if record.offset < active_base] == list(
        range(active_base - 12, active_base)
    )


def test_a_tombstone_stays_for_delete_retention_ms_and_then_goes() -> None:
    store = Store()
    log = store.log()
    put(log, ("a", "1"), ("b", "1"), ("a", None))
    fill(log, 10, keys=2)
    store.compact()
    assert (b"a", None) in [(record.key, record.value) for record in records(log)]
    assert (b"a", b"1") not in [(record.key, record.value) for record in records(log)]
    store.clock.advance(4999)
    fill(log, 10, keys=2)
    store.compact()
    assert b"a" in last_values(records(log))
    store.clock.advance(1)
    fill(log, 10, keys=2)
    store.compact()
    assert b"a" not in last_values(records(log))
    assert b"b" in last_values(records(log))


def test_small_segments_are_united() -> None:
    store = Store()
    log = store.log()
    for _ in range(6):
        fill(log, 12, keys=12)
        store.compact()
    assert len(log.closed_segments) <= 8
    assert all(segment.size_bytes <= 400 for segment in log.closed_segments)


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


def test_replaced_files_are_removed_and_descriptors_given_back() -> None:
    store = Store()
    log = store.log()
    fill(log, 60, keys=3)
    store.compact()
    store.manager.remove_deleted()
    names = [name for name in store.fs.listdir(log.directory) if name[0] == "0"]
    snapshots = [name for name in names if name.endswith(".snapshot")]
    assert len(names) - len(snapshots) == 3 * log.segment_count
    assert len(snapshots) < log.segment_count
    assert all(name.endswith((".log", ".index", ".timeindex", ".snapshot")) for name in names)
    store.manager.close()
    assert store.fs.open_files == 0


def test_the_first_dirty_offset_outlives_a_restart() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    store.compact()
    store.manager.close()
    again = Store(store.fs)
    log = again.log()
    assert again.compact(force=False) == []
    assert again.compact()[0].passes == 0
    assert log.verify().findings == ()


def test_a_topic_made_anew_is_dirty_from_its_start() -> None:
    store = Store()
    fill(store.log(), 60, keys=2)
    store.compact()
    store.manager.delete(T)
    log = store.log()
    fill(log, 60, keys=2)
    assert store.compact()[0].passes == 1
    assert len(records(log)) < 20


def test_a_deleted_log_is_forgotten_by_the_next_run() -> None:
    store = Store()
    fill(store.log(), 60, keys=2)
    store.compact()
    store.manager.delete(T)
    assert store.compact(force=False) == []
    fill(store.log(), 60, keys=2)
    again = Store(store.fs.after_kill())
    log = again.log()
    assert again.compact()[0].passes == 1
    assert len(records(log)) < 20


def test_a_bad_checkpoint_means_that_all_is_dirty(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    fill(store.log(), 40, keys=2)
    store.compact()
    store.manager.close()
    fd = store.fs.open("/data/cleaner-offset-checkpoint")
    store.fs.pwritev(fd, [b"nonsense"], 0)
    store.fs.close(fd)
    with caplog.at_level(logging.WARNING):
        again = Store(store.fs)
    assert "count as dirty" in caplog.text
    again.log()
    assert again.compact()[0].passes == 1


def test_a_record_without_a_key_is_refused_and_an_older_one_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    log = store.log(cleanup_policy="delete")
    for _ in range(10):
        log.append(encode_batch([NewRecord(b"keyless")], codec=Codec.GZIP), leader_epoch=0)
    log = store.log()
    with pytest.raises(InvalidRecordError, match="record 1 has no key"):
        log.append(encode_batch([NewRecord(b"x", key=b"k"), NewRecord(b"keyless")], codec=Codec.ZSTD), leader_epoch=0)
    assert log.log_end_offset == 10
    fill(log, 20, keys=2)
    with caplog.at_level(logging.WARNING):
        (report,) = store.compact()
    assert report.keyless_dropped == 10
    assert "10 records without a key" in caplog.text


def test_a_damaged_batch_is_reported_and_nothing_is_replaced() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    segments = log.closed_segments
    store.fs.pwritev(segments[1].fd, [b"\xff"], segments[1].size_bytes - 1)
    (report,) = store.cleaner.run()
    assert "CRC-32C" in report.error
    assert log.closed_segments == segments
    assert store.cleaner.run() == []
    assert store.cleaner.run(force=True)[0].error == report.error


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=40)
    before = records(log)
    log.flush()
    store.manager.checkpoint()
    store.fs.capacity_bytes = store.fs.used_bytes + 300
    (report,) = store.cleaner.run(force=True)
    assert "No space left" in report.error
    assert records(log) == before
    assert not [name for name in store.fs.listdir(log.directory) if name.endswith(".cleaned")]
    store.fs.capacity_bytes = None
    assert store.compact()[0].passes == 1
    put(log, ("a", "1"))


def test_a_failed_rename_takes_the_log_offline_and_it_is_whole_when_opened_again() -> None:
    for after in range(200):
        store = Store()
        log = store.log()
        fill(log, 40, keys=3)
        before = last_values(records(log))
        log.flush()
        store.manager.checkpoint()
        store.fs.fail("rename", after=after)
        (report,) = store.cleaner.run(force=True)
        if not report.error:
            break
        again = Store(store.fs.after_kill())
        log = again.log()
        assert last_values(records(log)) == before
        assert log.verify().findings == ()
        again.compact()
        assert last_values(records(log)) == before
    else:
        pytest.fail("every rename failed")


def test_compacted_and_deleted_logs_lose_old_segments_too() -> None:
    store = Store()
    log = store.log(cleanup_policy="compact,delete", retention_ms="50000")
    fill(log, 40, keys=2)
    store.compact()
    only_compacted = store.log(TopicPartition("c", 0), retention_ms="50000", retention_bytes="1")
    fill(only_compacted, 40, keys=2)
    segments = only_compacted.segment_count
    list(store.manager.retention())
    assert log.log_start_offset == log.log_end_offset
    assert only_compacted.segment_count == segments


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


def test_a_limited_run_pays_for_the_bytes_that_it_reads_and_writes_and_no_more() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=40)
    size_bytes = sum(segment.size_bytes for segment in log.closed_segments)
    taken: list[int] = []

    class Counting(Throttle):
        def take(self, size_bytes: int) -> None:
            taken.append(size_bytes)

    throttle = Counting(store.clock, lambda _: False, 1)
    offsets = OffsetMap(1 << 12, 100)
    end_offset = fill_map(store.fs, log.closed_segments, 0, CleanedTransactions([]), offsets, throttle)
    rules = CleaningRules(latest=offsets, end_offset=end_offset, now_ms=0, delete_retention_ms=0, last_records={})
    rewriter = SegmentRewriter(store.fs, log.directory, log.config, rules, CleanedTransactions([]))
    for segment in log.closed_segments:
        rewriter.rewrite([segment], throttle).release()
    assert sum(taken) == 3 * size_bytes


def test_an_idempotent_producer_goes_on_after_its_records_were_compacted_away_and_the_state_was_lost() -> None:
    from millrace.records.record import BatchProducer

    store = Store()
    log = store.log()
    for sequence in range(3):
        record = NewRecord(b"%d" % sequence, key=b"k0")
        log.append(encode_batch([record], producer=BatchProducer(7, 0, sequence)), leader_epoch=0)
    fill(log, 40, keys=1)
    store.compact()
    store.manager.close()
    for name in store.fs.listdir(log.directory):
        if name.endswith(".snapshot"):
            store.fs.unlink(f"{log.directory}/{name}")
    store.fs.unlink(f"{log.directory.rpartition('/')[0]}/.kafka_cleanshutdown")
    again = Store(store.fs).log()
    with pytest.raises(OutOfOrderSequenceError):
        again.append(encode_batch([NewRecord(b"gap", key=b"k0")], producer=BatchProducer(7, 0, 9)), leader_epoch=0)
    again.append(encode_batch([NewRecord(b"next", key=b"k0")], producer=BatchProducer(7, 0, 3)), leader_epoch=0)


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


def test_what_is_above_the_high_watermark_is_not_compacted() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    log.high_watermark = bound = log.closed_segments[3].base_offset
    store.compact()
    found = [record.offset for record in records(log)]
    assert found[-(40 - bound) :] == list(range(bound, 40))
    assert len([offset for offset in found if offset < bound]) == 2
    log.high_watermark = 40
    store.compact()
    assert len(records(log)) < 40 - bound
