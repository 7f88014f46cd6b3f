"""The cleaner keeps the newest record of each key, in fewer segments, and compacts the logs that have become dirty."""

import logging

import pytest

from millrace.errors import InvalidRecordError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, TopicPartition
from millrace_broker.storage.cleaner.batches import CleaningRules, OffsetMap
from millrace_broker.storage.cleaner.cleaner import CleanedTransactions, SegmentRewriter, fill_map
from millrace_broker.storage.throttle import Throttle
from millrace_support.compacted_logs import Store, fill, last_values, put, records


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
    assert len(log.segments) == 1
    put(log, ("a", "3"), at=1001)
    assert len(log.segments) == 2


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


def test_replaced_files_are_removed_and_descriptors_given_back() -> None:
    store = Store()
    log = store.log()
    fill(log, 60, keys=3)
    store.compact()
    store.manager.remove_deleted()
    names = [name for name in store.fs.listdir(log.directory) if name[0] == "0"]
    snapshots = [name for name in names if name.endswith(".snapshot")]
    assert len(names) - len(snapshots) == 3 * len(log.segments)
    assert len(snapshots) < len(log.segments)
    assert all(name.endswith((".log", ".index", ".timeindex", ".snapshot")) for name in names)
    store.manager.close()
    assert store.fs.open_files == 0


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


def test_a_segment_of_which_an_empty_batch_is_left_is_sound() -> None:
    """The batch stays for its producer's sequence, has no time, and does not begin where the segment does."""
    store = Store()
    log = store.log()
    put(log, ("k", "first"))
    record = NewRecord(b"second", key=b"k", timestamp_ms=900_000)
    log.append(encode_batch([record], producer=BatchProducer(7, 0, 0)), leader_epoch=0)
    put(log, ("k", "long" * 80), ("other", "long" * 80))
    store.compact()
    left = next(iter(log.segments))
    assert [(header.base_offset, header.record_count) for _, header in left.headers(0)] == [(1, 0)]
    assert log.verify().findings == ()
