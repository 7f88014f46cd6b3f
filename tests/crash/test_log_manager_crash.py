"""The power is cut at every operation of a broker's life: its logs come back, or are gone as a whole."""

import uuid
from random import Random

import pytest

from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import LogManager, NewLog, TopicPartition
from millrace_broker.storage.data_dirs.meta_properties import FEW
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

CLUSTER_ID = "M0tZ0qZ3Q4Kq2sR1yHn0aw"
KEPT, DELETED = TopicPartition("kept", 0), TopicPartition("deleted", 3)
KEPT_ID, DELETED_ID = uuid.UUID(int=1), uuid.UUID(int=2)
PROPERTIES = {"log.segment.bytes": "400", "log.flush.interval.messages": "2", "log.segment.delete.delay.ms": "0"}


def manager(fs: CrashFileSystem, *data_dirs: str) -> LogManager:
    return LogManager(fs, ManualClock(), data_dirs or ("/one", "/two"), PROPERTIES, CLUSTER_ID, 1)


def batch(offset: int) -> bytes:
    return encode_batch([NewRecord(b"%d" % offset, timestamp_ms=1_700_000_000_000)])


class Life:
    """Two starts with a clean shutdown between them; `acknowledged` counts records that were synced."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self.fs = fs
        self.acknowledged = 0
        self.is_deleted = False

    def run(self) -> None:
        for _ in range(2):
            logs = manager(self.fs)
            logs.start()
            log = logs.create(KEPT, KEPT_ID, {})
            logs.create(DELETED, DELETED_ID, {}).append(batch(0), leader_epoch=1)
            for _ in range(6):
                log.append(batch(log.log_end_offset), leader_epoch=1)
                self.acknowledged = log.recovery_point
            logs.checkpoint()
            logs.flush_due()
            logs.delete(DELETED)
            self.is_deleted = True
            logs.remove_deleted()
            logs.close()
            self.is_deleted = False


def check(after: CrashFileSystem, life: Life) -> None:
    logs = manager(after)
    logs.start()
    assert logs.topic_id(KEPT) in {None, KEPT_ID}
    log = logs.create(KEPT, KEPT_ID, {})
    assert log.log_end_offset >= life.acknowledged
    for offset in range(log.log_end_offset):
        data = log.read(offset, 1, up_to_offset=log.log_end_offset)
        assert [record.value for record in decode_records(data)] == [b"%d" % offset]
    if life.is_deleted:
        assert logs.get(DELETED) is None
    assert all(report.findings == () for report in logs.verify())
    logs.close()
    assert after.open_files == 0


@pytest.mark.soak(rounds=3, minutes=1)
def test_logs_come_back_after_a_power_cut_at_any_operation(rounds, record_property) -> None:
    for seed in rounds:
        fs = CrashFileSystem()
        life = Life(fs)
        for cut_at in fs.each_change(life.run):
            check(fs.after_cut(Random(seed * 1000 + cut_at) if seed else None), life)
    record_property("seeds", seed + 1)


MANY = [TopicPartition("many", index) for index in range(FEW + 1)]


@pytest.mark.soak(rounds=2, minutes=1)
def test_many_logs_made_at_once_survive_a_power_cut_at_any_operation(rounds, record_property) -> None:
    """Cut while they are made, all of them can be made again; once they are made, they are there with their ids."""
    wanted = [NewLog(each, KEPT_ID, {}) for each in MANY]
    for seed in rounds:
        fs = CrashFileSystem()
        logs = manager(fs, "/one")
        logs.start()
        for cut_at in fs.each_change(lambda logs=logs: logs.create_all(wanted)):
            check_many(fs.after_cut(Random(seed * 1000 + cut_at) if seed else None), wanted, is_made=False)
        check_many(fs.after_cut(Random(seed * 1000) if seed else None), wanted, is_made=True)
    record_property("seeds", seed + 1)


def check_many(after: CrashFileSystem, wanted: list[NewLog], *, is_made: bool) -> None:
    again = manager(after, "/one")
    again.start()
    for each in MANY:
        assert again.topic_id(each) == KEPT_ID or (again.topic_id(each) is None and not is_made)
    again.create_all(wanted)
    assert all(again.create(*each).log_end_offset == 0 for each in wanted)
    again.close()
    assert after.open_files == 0


def test_a_clean_shutdown_survives_a_power_cut_and_recovers_nothing() -> None:
    fs = CrashFileSystem()
    Life(fs).run()
    logs = manager(fs.after_cut())
    report = logs.start()
    assert report.clean_dirs == ("/one", "/two")
    assert [(log.recovered_segments, log.truncated_bytes) for log in report.logs] == [(0, 0)]
    assert report.logs[0].log_end_offset == 12


def test_a_crash_after_a_clean_shutdown_is_no_clean_shutdown() -> None:
    fs = CrashFileSystem()
    Life(fs).run()
    manager(fs).start()
    assert manager(fs.after_cut()).start().clean_dirs == ()


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_deleted_records_stay_deleted_once_a_checkpoint_was_written(seed: int | None) -> None:
    """The start lies inside a segment, or above all that the power cut has left."""
    for start in (3, 5, 6):
        fs = CrashFileSystem()
        logs = manager(fs)
        logs.start()
        log = logs.create(KEPT, KEPT_ID, {"flush.messages": "5"})
        for _ in range(6):
            log.append(batch(log.log_end_offset), leader_epoch=1)
        log.raise_log_start_offset(start)
        logs.checkpoint()
        after = fs.after_cut(None if seed is None else Random(seed))
        again = manager(after)
        assert again.start().logs[0].log_start_offset == start
        log = again.create(KEPT, KEPT_ID, {})
        assert log.log_end_offset >= max(start, 5)
        log.append(batch(log.log_end_offset), leader_epoch=1)
        data = log.read(start, 1, up_to_offset=log.log_end_offset)
        assert [record.value for record in decode_records(data)] == [b"%d" % start]
        list(again.retention())
        again.checkpoint()
        again.close()
        third = manager(after)
        assert third.start().logs[0].log_start_offset == start
