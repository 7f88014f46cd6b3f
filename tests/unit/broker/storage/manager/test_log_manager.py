import dataclasses
import json
import uuid
from collections.abc import Callable

import pytest

from millrace.errors import InconsistentClusterIdError, InconsistentTopicIdError, InvalidConfigError, StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, NewLog, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 1)
TOPIC_ID = uuid.UUID(int=42)
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])
NewManager = Callable[..., LogManager]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def new_manager(tmp_path, clock: ManualClock) -> NewManager:
    def new_manager(dirs: int = 1, *, cluster_id: str = "cluster", broker_id: int = 1, **properties: str) -> LogManager:
        defaults = {name.replace("_", "."): value for name, value in properties.items()}
        paths = [str(tmp_path / str(number)) for number in range(dirs)]
        return LogManager(OsFileSystem(), clock, paths, defaults, cluster_id, broker_id)

    return new_manager


def test_logs_come_back_with_their_ids(new_manager: NewManager) -> None:
    logs = new_manager()
    assert logs.start().logs == ()
    logs.create(FIRST, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    logs.close()
    again = new_manager()
    report = again.start()
    assert [(log.topic, log.partition, log.log_end_offset, log.recovered_segments) for log in report.logs] == [
        ("first", 0, 1, 0)
    ]
    assert again.topic_id(FIRST) == TOPIC_ID
    assert set(again.logs()) == {FIRST}
    assert again.get(SECOND) is None
    again.close()


def test_creating_again_gives_the_same_log_its_settings(new_manager: NewManager) -> None:
    logs = new_manager(message_max_bytes="500")
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {})
    assert log.config.max_message_bytes == 500
    assert logs.create(FIRST, TOPIC_ID, {"max.message.bytes": "600"}) is log
    assert log.config.max_message_bytes == 600
    with pytest.raises(InvalidConfigError):
        logs.create(SECOND, TOPIC_ID, {"max.message.bytes": "much"})
    with pytest.raises(InconsistentTopicIdError, match=str(TOPIC_ID)):
        logs.create(FIRST, uuid.UUID(int=43), {})
    logs.close()


def test_a_topic_from_elsewhere_may_have_properties_without_a_meaning_here(new_manager: NewManager, caplog) -> None:
    logs = new_manager()
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {"another.systems.property": "3", "max.message.bytes": "600"})
    assert log.config.max_message_bytes == 600
    assert f"{FIRST}: topic properties that this broker ignores: another.systems.property" in caplog.messages
    logs.close()


def test_a_new_partition_goes_where_the_fewest_are(new_manager: NewManager, tmp_path) -> None:
    logs = new_manager(2)
    logs.start()
    for partition in range(5):
        logs.create(TopicPartition("t", partition), TOPIC_ID, {})
    counts = [sum(1 for path in (tmp_path / name).iterdir() if path.is_dir()) for name in ("0", "1")]
    assert sorted(counts) == [2, 3]
    logs.close()
    again = new_manager(2)
    assert len(again.start().logs) == 5
    again.close()


def test_a_folder_serves_one_broker_at_a_time(new_manager: NewManager, tmp_path) -> None:
    logs = new_manager()
    logs.start()
    with pytest.raises(StorageError, match=f"{tmp_path / '0'}: another broker holds this folder"):
        new_manager().start()
    logs.close()
    free = new_manager()
    free.start()
    free.close()


def test_a_folder_of_another_cluster_is_refused_and_unlocked(new_manager: NewManager) -> None:
    logs = new_manager()
    logs.start()
    logs.close()
    with pytest.raises(InconsistentClusterIdError):
        new_manager(cluster_id="other").start()
    with pytest.raises(InconsistentClusterIdError):
        new_manager(broker_id=2).start()
    again = new_manager()
    again.start()
    again.close()


def test_a_partition_in_two_folders_is_an_error(new_manager: NewManager, tmp_path) -> None:
    logs = new_manager(2)
    logs.start()
    logs.create(FIRST, TOPIC_ID, {})
    logs.close()
    for name in ("0", "1"):
        (tmp_path / name / str(FIRST)).mkdir(exist_ok=True)
    with pytest.raises(StorageError, match="holds this partition too"):
        new_manager(2).start()


def test_a_deleted_partition_is_gone_at_once_and_its_files_after_the_delay(
    new_manager: NewManager, clock: ManualClock, tmp_path
) -> None:
    logs = new_manager(log_segment_delete_delay_ms="500")
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {})
    log.append(BATCH, leader_epoch=0)
    logs.delete(FIRST)
    logs.delete(FIRST)
    assert logs.get(FIRST) is None
    assert len(list((tmp_path / "0").glob("first-0.*-delete"))) == 1
    assert logs.create(FIRST, uuid.UUID(int=43), {}).log_end_offset == 0
    assert logs.remove_deleted() == 0
    clock.advance(500)
    assert logs.remove_deleted() == 1
    assert not list((tmp_path / "0").glob("*-delete"))
    logs.close()


def test_a_log_that_makes_way_for_another_of_its_name_is_kept_and_read_by_nothing(
    new_manager: NewManager, tmp_path
) -> None:
    logs = new_manager()
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {})
    log.append(BATCH, leader_epoch=0)
    size = (tmp_path / "0/first-0/00000000000000000000.log").stat().st_size
    logs.set_aside(FIRST)
    assert logs.create(FIRST, uuid.UUID(int=43), {}).log_end_offset == 0
    logs.close()
    again = new_manager()
    assert (again.start().removed_dirs, list(again.logs())) == (0, [FIRST])
    (kept,) = (tmp_path / "0").glob("first-0.*-stray")
    assert (kept / "00000000000000000000.log").stat().st_size == size
    again.close()


def test_leftovers_of_a_deletion_are_removed_at_start(new_manager: NewManager, tmp_path) -> None:
    logs = new_manager()
    logs.start()
    logs.create(FIRST, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    logs.delete(FIRST)
    logs.close()
    again = new_manager()
    report = again.start()
    assert (report.removed_dirs, report.logs) == (1, ())
    assert not list((tmp_path / "0").glob("*-delete"))
    again.close()


def test_retention_waits_for_a_logs_settings(new_manager: NewManager) -> None:
    logs = new_manager()
    logs.start()
    logs.create(FIRST, TOPIC_ID, {"retention.ms": "-1"}).append(BATCH, leader_epoch=0)
    logs.close()
    again = new_manager()
    again.start()
    assert list(again.retention()) == []
    again.create(FIRST, TOPIC_ID, {"retention.ms": "-1"})
    assert [report.deleted_segments for report in list(again.retention())] == [0]
    again.create(FIRST, TOPIC_ID, {})
    assert [report.deleted_segments for report in list(again.retention())] == [1]
    again.close()


def test_a_raised_log_start_offset_is_remembered(new_manager: NewManager) -> None:
    logs = new_manager()
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {})
    for _ in range(5):
        log.append(BATCH, leader_epoch=0)
    log.raise_log_start_offset(3)
    logs.close()
    again = new_manager()
    assert again.start().logs[0].log_start_offset == 3
    again.close()


def test_retention_makes_room_on_a_full_disk_in_every_log(clock: ManualClock) -> None:
    fs = CrashFileSystem()
    properties = {"log.segment.bytes": "100", "log.retention.ms": "1000", "log.segment.delete.delay.ms": "0"}
    logs = LogManager(fs, clock, ["/data"], properties, "cluster", 1)
    logs.start()
    for key in (FIRST, SECOND):
        log = logs.create(key, TOPIC_ID, {})
        for _ in range(3):
            log.append(encode_batch([NewRecord(bytes(20), timestamp_ms=clock.now_ms())]), leader_epoch=0)
    clock.advance(2000)
    fs.capacity_bytes = fs.used_bytes
    with pytest.raises(StorageError, match="No space left"):
        list(logs.retention())
    assert [len(log.segments) for log in logs.logs().values()] == [1, 1]
    assert logs.remove_deleted() > 0
    assert [(report.deleted_segments, report.log_start_offset) for report in list(logs.retention())] == [(1, 3), (1, 3)]


def test_retention_passes_by_a_log_that_is_deleted_meanwhile(new_manager: NewManager, clock: ManualClock) -> None:
    logs = new_manager(log_retention_ms="1000")
    logs.start()
    for key in (FIRST, SECOND):
        logs.create(key, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    clock.advance(2000)
    steps = logs.retention()
    assert next(steps).deleted_segments == 1
    logs.delete(SECOND)
    assert next(steps).deleted_segments == 0
    logs.close()


@pytest.mark.parametrize("has_restarted", [False, True])
def test_a_log_that_is_made_anew_has_nothing_of_the_older_one_after_a_crash(*, has_restarted: bool) -> None:
    def started(fs: CrashFileSystem) -> LogManager:
        logs = LogManager(fs, ManualClock(), ["/data"], {}, "cluster", 1)
        logs.start()
        return logs

    logs = started(fs := CrashFileSystem())
    log = logs.create(FIRST, TOPIC_ID, {})
    for _ in range(9):
        log.append(BATCH, leader_epoch=0)
    log.flush()
    log.raise_log_start_offset(7)
    logs.checkpoint()
    logs.delete(FIRST)
    if has_restarted:
        logs = started(fs := fs.after_kill())
    logs.create_all([NewLog(FIRST, uuid.UUID(int=43), {})])
    logs.create(FIRST, uuid.UUID(int=43), {}).append(BATCH, leader_epoch=0)
    again = started(fs.after_kill())
    log = again.create(FIRST, uuid.UUID(int=43), {})
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 1, 0)


def test_due_logs_are_flushed(new_manager: NewManager, clock: ManualClock) -> None:
    logs = new_manager(log_flush_interval_ms="100")
    logs.start()
    log = logs.create(FIRST, TOPIC_ID, {})
    log.append(BATCH, leader_epoch=0)
    logs.flush_due()
    assert log.recovery_point == 0
    clock.advance(100)
    logs.flush_due()
    assert log.recovery_point == 1
    logs.close()


def test_reports_are_json(new_manager: NewManager) -> None:
    logs = new_manager()
    recovery = logs.start()
    logs.create(FIRST, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    for report in (recovery, *logs.verify(), *list(logs.retention())):
        assert json.loads(json.dumps(dataclasses.asdict(report)))
    logs.close()


class CountingFiles(OsFileSystem):
    """Counts what is synced."""

    def __init__(self) -> None:
        self.syncs = 0

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self.syncs += 1
        super().fsync_dir(path)


def syncs_of_a_restart(tmp_path, clock: ManualClock, append_to: TopicPartition | None = None) -> int:
    fs = CountingFiles()
    logs = LogManager(fs, clock, [str(tmp_path / "0")], {}, "cluster", 1)
    logs.start()
    if append_to is not None:
        logs.logs()[append_to].append(BATCH, leader_epoch=0)
    logs.close()
    return fs.syncs


def test_a_clean_stop_syncs_only_the_logs_that_were_written_to(tmp_path, clock, new_manager: NewManager) -> None:
    logs = new_manager()
    logs.start()
    logs.create(FIRST, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    logs.close()
    of_one_log = syncs_of_a_restart(tmp_path, clock)
    logs = new_manager()
    logs.start()
    for partition in range(10):
        logs.create(TopicPartition("more", partition), TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    logs.close()
    assert syncs_of_a_restart(tmp_path, clock) == of_one_log
    assert syncs_of_a_restart(tmp_path, clock, append_to=FIRST) > of_one_log
