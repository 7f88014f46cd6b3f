"""The power is cut at every operation of a broker's life: its logs come back, or are gone as a whole."""

import uuid
from contextlib import suppress
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogManager, NewLog, TopicPartition
from millrace_broker.storage.data_dirs.partition_dirs import FEW
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


@pytest.mark.parametrize("after", range(8))
def test_a_log_that_could_not_be_made_is_not_there_after_a_power_cut(after: int) -> None:
    """Its folder and the topic's id were synced before a file of its log could not be opened."""
    fs = CrashFileSystem()
    logs = manager(fs)
    logs.start()
    fs.fail("open", after=after)
    with suppress(StorageError):
        logs.create(KEPT, KEPT_ID, {})
    after_cut = manager(fs.after_cut())
    after_cut.start()
    assert after_cut.logs().keys() == logs.logs().keys()


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


def filled_and_cut(fs: CrashFileSystem, start: int) -> LogManager:
    """Returns logs of which one starts at an offset, as its checkpoint says."""
    logs = manager(fs, "/one")
    logs.start()
    log = logs.create(KEPT, KEPT_ID, {"flush.messages": "1"})
    for _ in range(12):
        log.append(batch(log.log_end_offset), leader_epoch=1)
    log.raise_log_start_offset(start)
    list(logs.retention())
    logs.remove_deleted()
    logs.checkpoint()
    return logs


@pytest.mark.parametrize(("start", "afresh"), [(7, 0), (7, 30), (1, 30)])
def test_a_log_that_begins_afresh_has_lost_nothing_at_any_operation(start: int, afresh: int) -> None:
    """It begins where it did or afresh, and what is between is not damage, whichever names a loss of power keeps."""
    fs = CrashFileSystem()
    logs = filled_and_cut(fs, start)
    first = logs.logs()[KEPT].segments[0].base_offset
    assert (first > 0) is (start == 7)
    allowed = {start, afresh} | ({first} if afresh < start else set())  # as the start is lowered before

    def run() -> None:
        logs.truncate_fully_and_start_at(KEPT, afresh)
        logs.remove_deleted()
        logs.checkpoint()
        logs.remove_deleted()

    for cut_at in fs.each_change(run):
        for after in (
            fs.after_kill(),
            fs.after_cut(),
            *(fs.after_cut(Random(cut_at * 10 + seed)) for seed in range(4)),
        ):
            again = manager(after, "/one")
            again.start()
            log = again.logs()[KEPT]
            assert log.damage == []
            assert log.log_start_offset in allowed
    assert not [name for name in fs.listdir(f"/one/{KEPT}") if name.endswith(".deleted")]


def has_damage(fs: CrashFileSystem) -> bool:
    logs = manager(fs, "/one")
    logs.start()
    return bool(logs.logs()[KEPT].damage)


def test_a_checkpoint_that_a_kill_left_unsynced_is_synced_before_files_go_by_it() -> None:
    fs = CrashFileSystem()
    logs = filled_and_cut(fs, 0)
    log = logs.logs()[KEPT]
    log.raise_log_start_offset(log.segments[2].base_offset)
    list(logs.retention())
    for _ in fs.each_change(logs.remove_deleted):
        again = fs.after_kill()
        manager(again, "/one").start()
        assert not has_damage(again.after_cut())


def unsynced(fs: CrashFileSystem) -> tuple[LogManager, Log]:
    """Returns a log of several segments that were never synced."""
    logs = manager(fs, "/one")
    logs.start()
    log = logs.create(KEPT, KEPT_ID, {"flush.messages": "1000"})
    for _ in range(12):
        log.append(batch(log.log_end_offset), leader_epoch=1)
    return logs, log


def test_a_lost_first_segment_above_the_recovery_point_costs_nothing_else_at_any_operation_of_a_start() -> None:
    fs = CrashFileSystem()
    logs, log = unsynced(fs)
    logs.checkpoint()
    assert log.recovery_point == 0
    left = fs.after_kill()
    for name in left.listdir(f"/one/{KEPT}"):
        if name.startswith(f"{0:020d}."):
            left.lose(f"/one/{KEPT}/{name}")
    for _ in left.each_change(lambda: manager(left, "/one").start()):
        again = manager(left.after_kill(), "/one")
        again.start()
        found = again.logs()[KEPT]
        missing = [(one.start_offset, one.end_offset) for _, one in found.damage]
        assert (missing, found.log_end_offset) == ([(0, log.segments[1].base_offset)], 12)


def test_deleted_segments_that_were_not_synced_are_no_damage_while_checkpoints_are_written() -> None:
    fs = CrashFileSystem()
    logs, log = unsynced(fs)
    log.raise_log_start_offset(log.segments[2].base_offset)
    list(logs.retention())
    for cut_at in fs.each_change(logs.checkpoint):
        for seed in range(8):
            assert not has_damage(fs.after_cut(Random(cut_at * 10 + seed) if seed else None))


def test_a_full_disk_gets_the_room_of_deleted_segments_and_keeps_one_name_of_each() -> None:
    fs = CrashFileSystem()
    logs = filled_and_cut(fs, 0)
    log = logs.logs()[KEPT]
    bases = [segment.base_offset for segment in log.segments[:2]]
    log.raise_log_start_offset(log.segments[2].base_offset)
    list(logs.retention())
    fs.capacity_bytes = fs.used_bytes
    before = fs.used_bytes
    with pytest.raises(StorageError, match="No space left"):
        logs.remove_deleted()
    left = [name for name in fs.listdir(f"/one/{KEPT}") if name.endswith(".deleted")]
    assert left == [f"{base:020d}.log.deleted" for base in bases]
    assert fs.used_bytes < before
    assert logs.remove_deleted() == 2
    again = manager(fs.after_kill(), "/one")
    again.start()
    assert (again.logs()[KEPT].log_start_offset, again.logs()[KEPT].damage) == (log.log_start_offset, [])
