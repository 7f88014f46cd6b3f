"""A start on a full disk: what is there is served, appends are refused until there is room, and then go on."""

import errno
import uuid
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.fs import write_file_durably
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_broker.storage.data_dirs.data_dir import read_boot_id
from millrace_broker.storage.segments.indexes import TimeIndex
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

T = TopicPartition("t", 0)
FOLDER = "/data/t-0"
SETTINGS = {"segment.bytes": "600", "index.interval.bytes": "0"}
TRANSACTIONS = 6
LARGE = encode_batch([NewRecord(bytes(400))])

Filled = tuple[CrashFileSystem, LogManager, Log]


def opened(fs: CrashFileSystem, settings: dict[str, str] = SETTINGS) -> tuple[LogManager, Log]:
    manager = LogManager(fs, ManualClock(1_000_000), ["/data"], {}, "c" * 22, 1)
    report = manager.start()
    assert report.offline_dirs == ()
    return manager, manager.create(T, uuid.UUID(int=1), settings)


def filled() -> Filled:
    """Several segments and leader epochs, with transactions that were aborted."""
    fs = CrashFileSystem()
    manager, log = opened(fs)
    for number in range(TRANSACTIONS):
        for sequence in range(number * 4, number * 4 + 4):
            producer = BatchProducer(7, 0, sequence)
            batch = encode_batch([NewRecord(b"x" * 50)], producer=producer, flags=TRANSACTIONAL_FLAG)
            log.append(batch, leader_epoch=number // 2)
        marker = EndTransactionMarker(ControlType.ABORT, 0)
        append_marker(log, marker, producer_id=7, producer_epoch=0, leader_epoch=number // 2)
    return fs, manager, log


def without(fs: CrashFileSystem, *suffixes: str) -> CrashFileSystem:
    for name in fs.listdir(FOLDER):
        if name.endswith(suffixes):
            fs.unlink(f"{FOLDER}/{name}")
    return fs


def test_a_machine_that_has_lost_power_opens_its_full_disk() -> None:
    """There is no room for the id of the machine's start: the former one stays, and says once more what was lost."""
    fs, manager, _ = filled()
    manager.close()
    for boot_id, room_bytes, written in (("first", 1000, "first"), ("second", 0, "first"), ("second", 1000, "second")):
        fs.capacity_bytes = fs.used_bytes + room_bytes
        manager = LogManager(fs, ManualClock(1_000_000), ["/data"], {}, "c" * 22, 1, boot_id=boot_id)
        assert manager.start().offline_dirs == ()
        assert read_boot_id(fs, "/data") == written
        fs = fs.after_kill()


def test_epochs_that_are_not_in_the_metadata_are_in_the_file_before_a_log_grows() -> None:
    fs = CrashFileSystem()
    manager, log = opened(fs)
    manager.write_epochs_first()
    new = manager.create(TopicPartition("u", 0), uuid.UUID(int=2), SETTINGS)
    for each in log, new:
        fs.fail("pwritev", after=1)  # the first writes the epochs
        with pytest.raises(StorageError):
            each.append(LARGE, leader_epoch=3)
        assert fs.exists(f"{each.directory}/leader-epoch-checkpoint")


def stopped(what: Filled) -> CrashFileSystem:
    fs, manager, _ = what
    manager.close()
    return fs


def killed(what: Filled) -> CrashFileSystem:
    return what[0].after_kill()


def flushed_and_killed(what: Filled) -> CrashFileSystem:
    fs, manager, log = what
    log.flush()
    manager.checkpoint()
    return fs.after_kill()


def flushed_and_cut(what: Filled) -> CrashFileSystem:
    fs, manager, log = what
    log.flush()
    manager.checkpoint()
    log.append(LARGE, leader_epoch=9)
    return fs.after_cut(Random(1))


WAYS: dict[str, Callable[[Filled], CrashFileSystem]] = {
    "stopped": stopped,
    "stopped, indexes lost": lambda what: without(stopped(what), ".index", ".timeindex"),
    "killed": killed,
    "killed, aborted transactions and indexes lost": lambda what: without(
        killed(what), ".index", ".timeindex", ".txnindex"
    ),
    "killed, snapshots lost": lambda what: without(killed(what), ".snapshot"),
    "flushed and killed, indexes lost": lambda what: without(flushed_and_killed(what), ".index", ".timeindex"),
    "power cut": flushed_and_cut,
}


def whole(log: Log) -> bytes:
    found, offset = b"", 0
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        found += data
        offset = [header for _, header in walk(data)][-1].next_offset
    assert offset == log.log_end_offset
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_log_on_a_full_disk_is_read_and_appends_go_on_when_there_is_room(way: str) -> None:
    before = filled()
    content = whole(before[2])
    fs = WAYS[way](before)
    fs.capacity_bytes = fs.used_bytes
    manager, log = opened(fs)
    assert [each.first_offset for each in log.aborted_transactions(0, log.log_end_offset)] == [0, 5, 10, 15, 20, 25]
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            log.append(LARGE, leader_epoch=10)
    assert whole(log)[: len(content)] == content
    end = log.log_end_offset
    fs.capacity_bytes = None
    assert log.append(LARGE, leader_epoch=10).first_offset == end
    manager.flush_due()
    manager.checkpoint()
    after = whole(log)
    for again in (fs.after_kill(), fs.after_cut(), fs.after_cut(Random(2))):
        log = opened(again)[1]
        assert log.log_end_offset >= end
        assert after.startswith(whole(log))
        assert log.verify().findings == ()
    manager.close()
    assert whole(opened(fs)[1]) == after
    assert not [name for name in fs.listdir(FOLDER) if name.endswith(".tmp")]


def test_a_full_disk_at_every_start_and_at_every_stop_costs_nothing_that_is_there() -> None:
    fs = killed(filled())
    fs.capacity_bytes = fs.used_bytes
    content = whole(opened(fs.after_kill())[1])
    for _ in range(3):
        fs = fs.after_kill()
        fs.capacity_bytes = fs.used_bytes
        manager, log = opened(fs)
        assert whole(log) == content
        assert len(log.aborted_transactions(0, log.log_end_offset)) == TRANSACTIONS
        with pytest.raises(StorageError, match=r"No space left|no room"):
            manager.close()
        assert fs.open_files == 0


@pytest.mark.parametrize("end", [flushed_and_killed, stopped])
def test_a_disk_with_room_for_some_of_the_indexes_forgets_no_aborted_transaction(
    end: Callable[[Filled], CrashFileSystem],
) -> None:
    """The next starts, with the same room or all of it, know what this one rebuilt but could not write."""
    given = end(filled())
    newest = max(name for name in given.listdir(FOLDER) if name.endswith(".log")).removesuffix(".log")
    for name in given.listdir(FOLDER):
        if name.endswith("index") and not name.startswith(newest):
            given.unlink(f"{FOLDER}/{name}")
    for room in range(0, 260, 12):
        fs = given.after_kill()
        for capacity in (fs.used_bytes + room, fs.used_bytes + room, None):
            fs = fs.after_kill()
            fs.capacity_bytes = capacity
            manager, log = opened(fs)
            assert len(log.aborted_transactions(0, log.log_end_offset)) == TRANSACTIONS
            with suppress(StorageError):
                manager.close()


def test_an_index_is_written_as_a_whole_or_not_at_all() -> None:
    fs = CrashFileSystem()
    index = TimeIndex(fs, "/index", 1000)
    index.clear()
    index.append(1, 1)
    index.write()
    index.append(2, 2)
    fs.capacity_bytes = fs.used_bytes + 5
    with pytest.raises(OSError, match="No space left"):
        index.write()
    assert fs.used_bytes == TimeIndex.ENTRY.size
    fs.capacity_bytes = None
    index.seal()
    assert list(index) == [(1, 1), (2, 2)]


def test_a_segment_that_can_not_take_its_room_is_served_without() -> None:
    fs = CrashFileSystem()
    manager = LogManager(fs, ManualClock(), ["/data"], {"log.preallocate": "true"}, "c" * 22, 1)
    manager.start()
    manager.create(T, uuid.UUID(int=1), SETTINGS).append(LARGE, leader_epoch=0)
    manager.close()
    fs.capacity_bytes = fs.used_bytes
    manager = LogManager(fs, ManualClock(), ["/data"], {"log.preallocate": "true"}, "c" * 22, 1)
    assert manager.start().offline_dirs == ()
    assert manager.get(T).log_end_offset == 1


def test_another_failure_than_a_full_disk_takes_the_folder_offline_as_ever() -> None:
    fs = without(killed(filled()), ".txnindex")
    fs.fail("pwritev", code=errno.EIO)
    with pytest.raises(StorageError, match="no data folder is online"):
        LogManager(fs, ManualClock(), ["/data"], {}, "c" * 22, 1).start()


def test_a_small_file_that_finds_no_room_leaves_none_of_it_behind() -> None:
    fs = CrashFileSystem(capacity_bytes=10)
    write_file_durably(fs, "/file", b"old")
    with pytest.raises(OSError, match="No space left"):
        write_file_durably(fs, "/file", b"new and long")
    assert (fs.listdir("/"), fs.used_bytes) == (["file"], 3)
