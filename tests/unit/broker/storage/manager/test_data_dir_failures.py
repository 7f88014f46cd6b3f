"""One failed data folder takes down its own partitions and no others; folders and logs are opened side by side."""

import errno
import threading
import uuid
from pathlib import Path

import pytest

from millrace.errors import DataDirInUseError, StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

TOPIC_ID = uuid.UUID(int=7)
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])
PARTITIONS = [TopicPartition("t", number) for number in range(6)]


class FailingFileSystem(OsFileSystem):
    """Syncs and writes of files below `broken` fail once it is set."""

    def __init__(self) -> None:
        self.broken = "nowhere"
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        if self._paths[fd].startswith(self.broken):
            raise OSError(5, "Input/output error")
        super().fsync(fd)


@pytest.fixture
def fs() -> FailingFileSystem:
    return FailingFileSystem()


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


def manager(fs: OsFileSystem, dirs: list[str], **properties: str) -> LogManager:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return LogManager(fs, ManualClock(), dirs, named, "cluster", 1)


def filled(fs: OsFileSystem, dirs: list[str]) -> LogManager:
    logs = manager(fs, dirs)
    logs.start()
    for topic_partition in PARTITIONS:
        logs.create(topic_partition, TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    return logs


def in_dir(logs: LogManager, path: str) -> list[Log]:
    return [log for log in logs.logs().values() if log.directory.startswith(path)]


def test_a_folder_that_cannot_be_opened_leaves_the_others_serving(
    fs: FailingFileSystem, dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    logs = filled(fs, dirs)
    lost = [log.topic_partition for log in in_dir(logs, dirs[0])]
    logs.close()
    checkpoint = Path(dirs[0]) / "recovery-point-offset-checkpoint"
    good = checkpoint.read_bytes()
    checkpoint.unlink()
    checkpoint.mkdir()
    logs = manager(fs, dirs)
    report = logs.start()
    assert (report.offline_dirs, report.clean_dirs) == ((dirs[0],), (dirs[1],))
    assert set(logs.logs()) == set(PARTITIONS) - set(lost)
    assert f"{dirs[0]} is offline" in caplog.text
    with pytest.raises(StorageError, match="may be there"):
        logs.create(lost[0], TOPIC_ID, {})
    for number in range(3):
        assert logs.create(TopicPartition("new", number), TOPIC_ID, {}).directory.startswith(dirs[1])
    logs.checkpoint()
    logs.close()
    checkpoint.rmdir()
    checkpoint.write_bytes(good)
    logs = manager(fs, dirs)
    assert len(logs.start().logs) == 9
    logs.close()


def test_nothing_is_made_anew_while_a_folder_cannot_even_be_listed(fs: FailingFileSystem, dirs: list[str]) -> None:
    Path(dirs[0]).write_bytes(b"a file where a folder should be")
    logs = manager(fs, dirs)
    assert logs.start().offline_dirs == (dirs[0],)
    with pytest.raises(StorageError, match="may be there"):
        logs.create(PARTITIONS[0], TOPIC_ID, {})
    logs.close()


def test_when_all_folders_fail_the_broker_does_not_start(fs: FailingFileSystem, dirs: list[str]) -> None:
    for path in dirs:
        Path(path).write_bytes(b"")
    with pytest.raises(StorageError, match="no data folder is online"):
        manager(fs, dirs).start()


def test_a_folder_in_use_stops_the_start_and_unlocks_the_others(fs: FailingFileSystem, dirs: list[str]) -> None:
    holder = manager(fs, dirs[:1])
    holder.start()
    with pytest.raises(DataDirInUseError):
        manager(fs, dirs).start()
    other = manager(fs, dirs[1:])
    other.start()
    other.close()
    holder.close()


def test_a_failed_sync_takes_its_folder_offline_and_no_other(fs: FailingFileSystem, dirs: list[str]) -> None:
    logs = filled(fs, dirs)
    bad, good = in_dir(logs, dirs[0]), in_dir(logs, dirs[1])
    fs.broken = dirs[0]
    with pytest.raises(StorageError, match="Input/output error"):
        bad[0].flush()
    for log in bad:
        with pytest.raises(StorageError, match="offline"):
            log.append(BATCH, leader_epoch=0)
        assert [record.offset for record in decode_records(log.read(0, 100, up_to_offset=1))] == [0]
    for log in good:
        log.append(BATCH, leader_epoch=0)
        log.flush()
    assert logs.create(TopicPartition("new", 0), TOPIC_ID, {}).directory.startswith(dirs[1])
    assert {report.topic for report in list(logs.retention())} == {"t", "new"}
    logs.close()
    markers = [(Path(path) / ".kafka_cleanshutdown").exists() for path in dirs]
    assert markers == [False, True]
    fs.broken = "nowhere"
    again = manager(fs, dirs)
    assert again.start().clean_dirs == (dirs[1],)
    assert sorted(log.log_end_offset for log in again.logs().values()) == [0, 1, 1, 1, 2, 2, 2]
    assert all(log.append(BATCH, leader_epoch=0) for log in again.logs().values())
    again.close()


class MeetingFileSystem(OsFileSystem):
    """Two segments must be opened at the same time, or none is."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(2, timeout=60)

    def open(self, path: str, *, create: bool = False) -> int:
        if path.endswith(".log"):
            self.meeting.wait()
        return super().open(path, create=create)


def test_folders_are_opened_side_by_side(fs: FailingFileSystem, dirs: list[str]) -> None:
    filled(fs, dirs).close()
    logs = manager(MeetingFileSystem(), dirs)
    assert len(logs.start().logs) == 6
    logs.close()


def test_logs_of_a_folder_are_opened_side_by_side(fs: FailingFileSystem, dirs: list[str]) -> None:
    filled(fs, dirs[:1]).close()
    logs = manager(MeetingFileSystem(), dirs[:1], num_recovery_threads_per_data_dir="2")
    assert len(logs.start().logs) == 6
    logs.close()


def test_high_watermarks_are_written_and_read(fs: FailingFileSystem, dirs: list[str]) -> None:
    logs = filled(fs, dirs)
    logs.checkpoint_high_watermarks(dict.fromkeys(PARTITIONS, 1))
    first = in_dir(logs, dirs[0])[0].topic_partition
    logs.checkpoint_high_watermarks({first: 0, TopicPartition("unknown", 0): 5})
    text = (Path(dirs[0]) / "replication-offset-checkpoint").read_text()
    assert text.splitlines() == [
        "0",
        "3",
        *(
            f"t {each.partition} {int(each != first)}"
            for each in sorted(log.topic_partition for log in in_dir(logs, dirs[0]))
        ),
    ]
    logs.close()
    again = manager(fs, dirs)
    again.start()
    high_watermark = again.checkpoints.high_watermark
    assert {key: high_watermark(key) for key in PARTITIONS} == {key: int(key != first) for key in PARTITIONS}
    again.get(first).raise_log_start_offset(1)
    assert again.checkpoints.high_watermark(first) == 1
    again.close()


@pytest.mark.parametrize("name", ["fsync", "fsync_dir", "pwritev"])
def test_a_process_without_descriptors_takes_no_folder_offline(name: str) -> None:
    fs = CrashFileSystem()
    logs = LogManager(fs, ManualClock(), ["/data"], {}, "cluster", 1)
    logs.start()
    log = logs.create(PARTITIONS[0], TOPIC_ID, {})
    log.append(BATCH, leader_epoch=-1)
    for code in (errno.EMFILE, errno.ENFILE):
        fs.fail(name, code=code)
        fs.fail("truncate", code=code)  # of who would cut off what was not written
        with pytest.raises(StorageError, match="Too many open files"):
            log.append(BATCH, leader_epoch=-1) if name == "pwritev" else log.flush()
    log.flush()
    assert log.recovery_point == 1
    again = LogManager(fs.after_cut(), ManualClock(), ["/data"], {}, "cluster", 1)
    assert again.start().logs[0].log_end_offset == 1
