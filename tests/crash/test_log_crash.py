"""The power is cut at every operation of a workload: what was flushed is there, and the log is whole."""

import logging
from contextlib import suppress
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.record import NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError, fs_with_folder

FOLDER = "/data/flights-0"
PARTITION = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0)


def batch(first: int, count: int) -> bytes:
    return encode_batch([NewRecord(b"value %d" % (first + slot), timestamp_ms=first + slot) for slot in range(count)])


def open_log(fs: CrashFileSystem, *, recovery_point: int = 0, config: LogConfig = CONFIG) -> Log:
    return Log(fs, ManualClock(), FOLDER, PARTITION, config, recovery_point=recovery_point)


def read_all(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        records += decode_records(data)
        offset = records[-1].offset + 1
    return [record for record in records if record.offset >= log.log_start_offset]


class Workload:
    """Appends, rolls, flushes and deletes; knows at any time what must survive."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self.fs = fs
        self.appended = 0
        self.flushed = 0
        self.deleted_up_to = 0

    def run(self) -> None:
        log = open_log(self.fs)
        for step in range(24):
            count = 1 + step % 3
            log.append(batch(self.appended, count), leader_epoch=step // 8)
            self.appended = log.log_end_offset
            if step % 5 == 4:
                log.flush()
                self.flushed = log.recovery_point
            if step == 17:
                self.deleted_up_to = 20
                log.raise_log_start_offset(20)
                log.apply_retention()
                log.remove_deleted()
        log.close()
        self.flushed = log.log_end_offset


def check_survivors(fs: CrashFileSystem, workload: Workload, recovery_point: int, *, is_killed: bool = False) -> None:
    log = open_log(fs, recovery_point=recovery_point)
    records = read_all(log)
    assert [record.offset for record in records] == list(range(log.log_start_offset, log.log_end_offset))
    assert all(record.value == b"value %d" % record.offset for record in records)
    assert log.log_end_offset >= (workload.appended if is_killed else workload.flushed)
    assert log.log_start_offset <= workload.deleted_up_to
    assert log.verify().findings == ()
    assert all(start < log.log_end_offset for _, start in log.leader_epochs.entries)
    log.append(batch(log.log_end_offset, 2), leader_epoch=9)
    assert read_all(log)[-1].value == b"value %d" % (log.log_end_offset - 1)
    log.close()
    assert fs.open_files == 0


def operations_of_workload() -> int:
    fs = fs_with_folder(FOLDER)
    Workload(fs).run()
    return fs.operations


OPERATIONS = operations_of_workload()


@pytest.mark.soak(rounds=5, minutes=1.5)
def test_every_flushed_batch_survives_a_power_cut_at_any_operation(rounds, record_property) -> None:
    for seed in rounds:
        fs = fs_with_folder(FOLDER)
        workload = Workload(fs)
        for cut_at in fs.each_change(workload.run):
            chance = Random(seed * 1000 + cut_at) if seed else None
            check_survivors(fs.after_cut(chance), workload, workload.flushed)
            check_survivors(fs.after_cut(chance), workload, 0)
    record_property("seeds", seed + 1)


def test_the_power_goes_while_segments_are_deleted_and_leaves_no_gap() -> None:
    good = fs_with_folder(FOLDER)
    log = open_log(good, config=LogConfig(segment_bytes=2 * len(batch(0, 1))))
    for first in range(9):
        log.append(batch(first, 1), leader_epoch=-1)
    log.flush()
    fs = good.after_kill()
    log = open_log(fs, recovery_point=9)
    log.raise_log_start_offset(8)
    assert log.apply_retention().deleted_segments > 1
    for cut_at in fs.each_change(log.remove_deleted):
        check_no_gap(fs, cut_at)
    check_no_gap(fs, fs.operations + 1)


def check_no_gap(fs: CrashFileSystem, cut_at: int) -> None:
    for seed in range(8):
        left = open_log(fs.after_cut(Random(seed * 1000 + cut_at)), recovery_point=9)
        assert [record.offset for record in read_all(left)] == list(range(left.log_start_offset, 9))


def test_a_killed_process_loses_nothing_that_was_appended() -> None:
    fs = fs_with_folder(FOLDER)
    workload = Workload(fs)
    for _ in fs.each_change(workload.run):
        check_survivors(fs.after_kill(), workload, 0, is_killed=True)


def test_the_power_goes_again_during_recovery() -> None:
    fs = fs_with_folder(FOLDER)
    fs.cut_power_at(OPERATIONS // 2)
    workload = Workload(fs)
    with pytest.raises(PowerCutError):
        workload.run()
    for cut_at in range(1, 40):
        again = fs.after_cut(Random(cut_at))
        again.cut_power_at(cut_at)
        with suppress(PowerCutError):
            open_log(again).append(batch(0, 1), leader_epoch=9)
        log = open_log(again.after_cut(Random(cut_at)))
        assert log.log_end_offset >= workload.flushed
        assert log.verify().findings == ()
        log.close()


@pytest.mark.parametrize(
    "tail", [b"garbage" * 30, bytes(200), batch(0, 2)[:-1], batch(0, 3)[:60], batch(0, 1)], ids=len
)
def test_a_bad_tail_is_cut_and_the_warning_says_how_many_bytes(tail: bytes, caplog: pytest.LogCaptureFixture) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    for first in range(3):
        log.append(batch(first, 1), leader_epoch=0)
    log.close()
    path = f"{FOLDER}/00000000000000000000.log"
    fd = fs.open(path)
    size = fs.size(fd)
    fs.pwritev(fd, [tail], size)
    with caplog.at_level(logging.WARNING):
        log = open_log(fs, recovery_point=3)
    assert f"{path}: truncated {len(tail)} bytes at position {size}: " in caplog.text
    assert log.recovery.truncated_bytes == len(tail)
    assert fs.size(fd) == size
    assert [record.offset for record in read_all(log)] == [0, 1, 2]


def test_a_flip_of_any_byte_of_the_last_batch_is_noticed() -> None:
    good = fs_with_folder(FOLDER)
    log = open_log(good)
    log.append(batch(0, 2), leader_epoch=3)
    log.append(batch(2, 2), leader_epoch=3)
    log.close()
    size = log.size_bytes
    leader_epoch_bytes = range(size // 2 + 12, size // 2 + 16)
    for position in set(range(size // 2, size)) - set(leader_epoch_bytes):
        fs = good.after_kill()
        fd = fs.open(f"{FOLDER}/00000000000000000000.log")
        fs.pwritev(fd, [bytes([fs.pread(fd, 1, position)[0] ^ 0x40])], position)
        log = open_log(fs)
        assert log.recovery.truncated_bytes == size // 2, f"the flip at {position} went unnoticed"
        assert [record.offset for record in read_all(log)] == [0, 1]


def test_a_lost_segment_tail_takes_the_later_segments_with_it(caplog: pytest.LogCaptureFixture) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    for first in range(20):
        log.append(batch(first, 1), leader_epoch=0)
    second = sorted(name for name in fs.listdir(FOLDER) if name.endswith(".log"))[1]
    fd = fs.open(f"{FOLDER}/{second}")
    fs.truncate(fd, fs.size(fd) - len(batch(0, 1)))
    with caplog.at_level(logging.WARNING):
        again = open_log(fs)
    assert again.recovery.dropped_segments > 0
    assert again.recovery.truncated_bytes > 0
    assert [record.offset for record in read_all(again)] == list(range(again.log_end_offset))
    assert "later segments" in caplog.text
    again.append(batch(again.log_end_offset, 1), leader_epoch=0)
    assert again.verify().findings == ()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "zeros"])
def test_a_bad_index_is_built_anew_even_after_a_clean_shutdown(suffix: str, damage: str) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    for first in range(20):
        log.append(batch(first, 1), leader_epoch=0)
    log.close()
    for name in [name for name in fs.listdir(FOLDER) if name.endswith(suffix)]:
        fd = fs.open(f"{FOLDER}/{name}")
        if damage == "missing":
            fs.unlink(f"{FOLDER}/{name}")
        elif damage == "cut":
            fs.truncate(fd, max(fs.size(fd) - 1, 1))
        else:
            fs.pwritev(fd, [bytes(24)], 0)
            fs.truncate(fd, 24)
    again = Log(fs, ManualClock(), FOLDER, PARTITION, CONFIG, clean=True)
    assert len(read_all(again)) == 20
    assert again.verify().findings == ()
    assert [again.offset_for_timestamp(offset) for offset in range(20)] == [(offset, offset) for offset in range(20)]


@pytest.mark.parametrize("operation", ["pwritev", "create"])
def test_a_failed_append_leaves_the_log_as_it_was(operation: str) -> None:
    for after in range(6):
        fs = fs_with_folder(FOLDER)
        log = open_log(fs, config=LogConfig(segment_bytes=200))
        log.append(batch(0, 1), leader_epoch=-1)
        fs.fail(operation, after=after)
        failures = 0
        while log.log_end_offset < 8:
            before = log.log_end_offset, log.size_bytes, read_all(log)
            try:
                log.append(batch(log.log_end_offset, 1), leader_epoch=-1)
            except StorageError:
                failures += 1
                assert (log.log_end_offset, log.size_bytes, read_all(log)) == before
        assert failures == 1
        assert [record.value for record in read_all(log)] == [b"value %d" % offset for offset in range(8)]
        assert log.verify().findings == ()


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    log.append(batch(0, 1), leader_epoch=-1)
    fs.capacity_bytes = fs.used_bytes + len(batch(0, 1)) // 2
    with pytest.raises(StorageError, match="No space left"):
        log.append(batch(1, 1), leader_epoch=-1)
    assert [record.offset for record in read_all(log)] == [0]
    fs.capacity_bytes = None
    assert log.append(batch(1, 1), leader_epoch=-1).first_offset == 1


def test_a_write_that_cannot_be_undone_takes_the_log_offline_until_it_is_opened_again() -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    log.append(batch(0, 1), leader_epoch=-1)
    fs.fail("pwritev")
    fs.fail("truncate")
    with pytest.raises(StorageError):
        log.append(batch(1, 1), leader_epoch=-1)
    with pytest.raises(StorageError, match="offline"):
        log.append(batch(1, 1), leader_epoch=-1)
    assert [record.offset for record in read_all(log)] == [0]
    log.close()
    again = open_log(fs)
    assert again.append(batch(1, 1), leader_epoch=-1).first_offset == 1


@pytest.mark.parametrize("operation", ["fsync", "fsync_dir"])
def test_a_failed_sync_moves_no_recovery_point_and_takes_the_log_offline(operation: str) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    log.append(batch(0, 1), leader_epoch=-1)
    fs.fail(operation)
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(StorageError, match="offline"):
        log.append(batch(1, 1), leader_epoch=-1)


def test_a_segment_rolled_after_the_last_flush_knows_its_largest_timestamp_again() -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, config=LogConfig(segment_bytes=3 * len(batch(0, 1))))
    for first in range(3):
        log.append(batch(first, 1), leader_epoch=-1)
    log.flush()
    log.append(batch(3, 1), leader_epoch=-1)
    again = open_log(fs.after_kill(), recovery_point=3)
    assert again.recovery.recovered_segments == 2
    assert again.offset_for_timestamp(2) == (2, 2)


def test_segments_at_the_recovery_point_are_never_cut(caplog: pytest.LogCaptureFixture) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, config=LogConfig(segment_bytes=3 * len(batch(0, 1))))
    for first in range(4):
        log.append(batch(first, 1), leader_epoch=-1)
    fs.pwritev(fs.open(f"{FOLDER}/00000000000000000000.log"), [b"?"], len(batch(0, 1)) + 70)
    again = open_log(fs, recovery_point=3)
    assert (again.log_end_offset, again.recovery.truncated_bytes) == (4, 0)
    assert "offsets 1 to 1 are damaged, " in caplog.text
    assert len(again.verify().findings) == 1


def fill(log: Log, limit: int = 500) -> None:
    """Append until the disk refuses."""
    while log.log_end_offset < limit:
        log.append(batch(log.log_end_offset, 1), leader_epoch=-1)


@pytest.mark.parametrize("flush_messages", [1, 5, 1 << 40])
@pytest.mark.parametrize("room_bytes", range(1000, 2000, 83))
def test_a_log_that_met_a_full_disk_is_whole_and_goes_on(flush_messages: int, room_bytes: int) -> None:
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, config=LogConfig(segment_bytes=300, index_interval_bytes=0, flush_messages=flush_messages))
    fs.capacity_bytes = room_bytes
    open_files = set()
    for _ in range(3):
        with pytest.raises(StorageError, match="No space left"):
            fill(log)
        open_files.add(fs.open_files)
    assert len(open_files) == 1
    end = log.log_end_offset
    assert end > 0
    assert [record.offset for record in read_all(log)] == list(range(end))
    assert log.verify().findings == ()
    killed = fs.after_kill()
    killed.capacity_bytes = None
    again = open_log(killed, recovery_point=log.recovery_point)
    assert [record.value for record in read_all(again)] == [b"value %d" % offset for offset in range(end)]
    fs.capacity_bytes = None
    fill(log, end + 30)
    log.flush()
    assert log.recovery_point == end + 30
    log.close()
    after = Log(fs, ManualClock(), FOLDER, PARTITION, CONFIG, clean=True)
    assert (after.recovery.recovered_segments, after.log_end_offset) == (0, end + 30)
    assert after.verify().findings == ()


class Torn(Random):
    """A source of chance by which each file has its new bytes, and behind them the old bytes that were synced."""

    def choice(self, options):
        return options[2]

    def randint(self, _, high):
        return high

    def random(self) -> float:
        return 1.0


def test_a_batch_that_was_cut_never_comes_back_behind_a_new_one() -> None:
    """Unless the cut is synced first, the old bytes behind a new batch of the same size are a batch again."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs)
    for first in range(3):
        log.append(batch(first, 1), leader_epoch=-1)
    size = log.size_bytes // 3
    log.close()
    fd = fs.open(f"{FOLDER}/00000000000000000000.log")
    fs.pwritev(fd, [b"?"], 2 * size - 1)
    fs.fsync(fd)
    log = open_log(fs)
    assert log.log_end_offset == 1
    log.append(encode_batch([NewRecord(b"VALUE 1", timestamp_ms=1)]), leader_epoch=-1)
    after = open_log(fs.after_cut(Torn()))
    assert [record.value for record in read_all(after)] == [b"value 0", b"VALUE 1"]


def test_a_segment_that_was_dropped_never_comes_back_behind_new_batches() -> None:
    """Unless its removal is synced first, new batches that reach its base offset are synced before its name is gone."""
    fs = fs_with_folder(FOLDER)
    size = len(batch(0, 1))
    config = LogConfig(segment_bytes=3 * size)
    log = open_log(fs, config=config)
    for first in range(8):
        log.append(batch(first, 1), leader_epoch=-1)
    log.close()
    for name in fs.listdir(FOLDER):
        if name.endswith(".snapshot"):
            fs.unlink(f"{FOLDER}/{name}")
    fs.fsync_dir(FOLDER)
    fd = fs.open(f"{FOLDER}/00000000000000000000.log")
    fs.truncate(fd, 2 * size)
    fs.fsync(fd)
    log = open_log(fs, config=config)
    assert (log.log_end_offset, log.recovery.dropped_segments) == (2, 2)
    log.append(encode_batch([NewRecord(b"VALUE 2", timestamp_ms=2)]), leader_epoch=-1)
    fs.fail("fsync_dir")
    with pytest.raises(StorageError):
        log.flush()
    after = open_log(fs.after_cut(), config=config)
    assert [record.value for record in read_all(after)] == [b"value 0", b"value 1", b"VALUE 2"]


@pytest.mark.parametrize("operation", ["open", "pread", "size"])
def test_a_log_that_can_not_be_opened_keeps_no_file_open(operation):
    fs = fs_with_folder(FOLDER)
    Workload(fs).run()
    failures = 0
    for after in range(60):
        crashed = fs.after_kill()
        crashed.fail(operation, after=after)
        try:
            log = open_log(crashed)
        except StorageError:
            failures += 1
            assert crashed.open_files == 0
        else:
            log.abandon()
            assert crashed.open_files == 0
    assert failures
