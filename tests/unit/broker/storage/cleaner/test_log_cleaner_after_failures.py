"""Logs are whole and compacted again after a restart, a deletion, damage, a full disk and a failed rename."""

import logging

import pytest

from millrace.errors import OutOfOrderSequenceError
from millrace.records.record import NewRecord, encode_batch
from millrace_support.compacted_logs import Store, T, fill, last_values, put, records


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
