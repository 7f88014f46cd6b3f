"""Logs are whole and compacted again after a restart, a deletion, damage, a full disk and a failed rename."""

import logging
import re

import pytest

from millrace.errors import OutOfOrderSequenceError
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, TopicPartition
from millrace_broker.storage.segments.segment import LogSegment
from millrace_support.compacted_logs import Store, T, fill, last_values, put, records

OTHER = TopicPartition("other", 0)


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


def test_a_log_in_which_offsets_are_missing_is_not_compacted() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    lost = log.closed_segments[1].path
    store.manager.close()
    store.fs.unlink(lost)
    again = Store(store.fs)
    log = again.log()
    ((_, missing),) = log.damage
    (report,) = again.cleaner.run(force=True)
    assert "missing" in report.error
    assert [one for _, one in log.damage] == [missing]


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


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_base_offset_keeps_no_other_log_from_compaction(bit: int) -> None:
    store = Store()
    damaged, other = store.log(), store.log(OTHER)
    for log in (damaged, other):
        fill(log, 40, keys=2)
    flip(store, damaged.closed_segments[1], bit)
    reports = {report.topic: report for report in store.cleaner.run()}
    assert reports["other"].error == ""
    assert len(records(other)) < 20
    assert re.search("are not among|behind a batch that ends at", reports[T.topic].error)
    assert store.cleaner.failing == (f"{T}: {reports[T.topic].error}",)


def flip(store: Store, segment: LogSegment, bit: int) -> None:
    """Flips a bit of a segment's first base offset, which no checksum covers."""
    place = 7 - bit // 8
    [octet] = store.fs.pread(segment.fd, 1, place)
    store.fs.pwritev(segment.fd, [bytes([octet ^ 1 << bit % 8])], place)


def test_a_log_that_fails_is_tried_again_after_pauses_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is one that nobody has foreseen: the cleaner logs its traceback, and goes on."""
    store = Store()
    fill(store.log(), 40, keys=2)
    flush, fails = Log.flush, True

    def failing(log: Log) -> None:
        if fails:
            raise LookupError("a fault of its own")
        flush(log)

    monkeypatch.setattr(Log, "flush", failing)
    pauses = []
    for _ in range(9):
        [report] = store.cleaner.run()
        assert report.error == "a fault of its own"
        assert store.cleaner.failing == (f"{T}: a fault of its own",)
        started_ms = store.clock.monotonic_ms()
        while not store.cleaner._failing.is_due(store.log()):
            assert store.cleaner.run() == []
            store.clock.advance(15_000)
        pauses.append((store.clock.monotonic_ms() - started_ms) // 1000)
    assert pauses == [15, 30, 60, 120, 240, 480, 900, 900, 900]
    fails = False
    [report] = store.cleaner.run()
    assert (report.error, report.passes, store.cleaner.failing) == ("", 1, ())


def test_another_log_of_the_name_begins_afresh() -> None:
    store = Store()
    log = store.log()
    fill(log, 40, keys=2)
    flip(store, log.closed_segments[1], 3)
    assert store.cleaner.run()[0].error
    store.manager.delete(T)
    assert store.cleaner.failing == ()
    fill(store.log(), 60, keys=2)
    assert store.cleaner.run()[0].error == ""
