"""A log that can't be made leaves no folder, which the next start would take for a log, unless that holds records."""

import errno
import uuid
from contextlib import suppress

import pytest

from millrace.errors import StorageError
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.storage.data_dirs.log_factory import NewLog
from millrace_broker.storage.data_dirs.partition_dirs import FEW
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

TOPIC_ID = uuid.UUID(int=7)
CHANGES = ["open", "pwritev", "truncate", "fsync", "fsync_dir", "rename", "mkdir"]


def opened(fs: CrashFileSystem) -> LogManager:
    manager = LogManager(fs, ManualClock(1_000_000), ["/data"], {}, "c" * 22, 1)
    assert manager.start().offline_dirs == ()
    return manager


def folders(fs: CrashFileSystem) -> set[str]:
    return {name for name in fs.listdir("/data") if name.startswith("t-")}


@pytest.mark.parametrize("count", [1, 3, FEW + 1])
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("name", CHANGES)
def test_what_could_not_be_made_leaves_no_folder_and_is_made_later(name: str, after: int, count: int) -> None:
    fs = CrashFileSystem()
    manager = opened(fs)
    partitions = [TopicPartition("t", index) for index in range(count)]
    fs.fail(name, after=after, code=errno.ENOSPC)
    manager.create_all(NewLog(one, TOPIC_ID, {}) for one in partitions)
    assert folders(fs) == folders(fs.after_cut()) == {str(one) for one in manager.logs()}
    for one in partitions:
        with suppress(StorageError):
            manager.create(one, TOPIC_ID, {})
        assert folders(fs) == folders(fs.after_cut()) == {str(one) for one in manager.logs()}
    for one in partitions:
        manager.create(one, TOPIC_ID, {})
    assert opened(fs.after_kill()).logs().keys() == set(partitions)


def test_a_disk_without_room_makes_no_folder() -> None:
    fs = CrashFileSystem()
    manager = opened(fs)
    for room_bytes in range(80):
        fs.capacity_bytes = fs.used_bytes + room_bytes
        try:
            manager.create(TopicPartition("t", 0), TOPIC_ID, {})
        except StorageError:
            assert folders(fs) == set()
        else:
            break
    else:
        raise AssertionError("the log was never made")
    assert room_bytes > 0


def test_a_folder_with_records_stays() -> None:
    fs = CrashFileSystem()
    log = opened(fs).create(TopicPartition("t", 0), TOPIC_ID, {})
    log.append(encode_batch([NewRecord(b"x")]), leader_epoch=0)
    log.flush()
    fs.rename("/data/t-0", "/data/kept")
    fs = fs.after_kill()
    manager = opened(fs)
    fs.rename("/data/kept", "/data/t-0")
    fs.fail("pwritev", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        manager.create(TopicPartition("t", 0), TOPIC_ID, {})
    assert manager.create(TopicPartition("t", 0), TOPIC_ID, {}).log_end_offset == 1
