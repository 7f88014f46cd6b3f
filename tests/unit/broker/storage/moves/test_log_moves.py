"""A log is moved to another data folder while retention, compaction and readers go on."""

import uuid

import pytest

from millrace.errors import CompactionStoppedError, StorageError
from millrace.fs import read_file
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogManager, LogSlice, TopicPartition
from millrace_broker.storage.checkpoints import read_offsets
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.log_moves import finish_move

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=1)
PROPERTIES = {"log.segment.bytes": "400", "log.segment.delete.delay.ms": "1000", "log.retention.bytes": "900"}
UNLIMITED = 1e300


@pytest.fixture
def fs() -> CrashFileSystem:
    return CrashFileSystem()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logs(fs: CrashFileSystem, clock: ManualClock) -> LogManager:
    found = LogManager(fs, clock, ["/one", "/two", "/three"], PROPERTIES, "cluster", 1)
    found.start()
    return found


def filled(logs: LogManager, count: int = 40, **settings: str) -> Log:
    log = logs.create(KEY, TOPIC_ID, {name.replace("_", "."): value for name, value in settings.items()})
    append(log, count)
    return log


def append(log: Log, count: int) -> None:
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        record = NewRecord(b"%d" % offset, key=b"%d" % (offset % 3), timestamp_ms=1_700_000_000_000)
        log.append(encode_batch([record], producer=BatchProducer(7, 0, offset)), leader_epoch=0)


def values(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset, 1, up_to_offset=log.log_end_offset):
        records = list(decode_records(data))
        found += [record.value for record in records]
        offset = records[-1].offset + 1 if records else offset + 1
    return found


def files(fs: CrashFileSystem, path: str) -> list[str]:
    return [name for name in fs.listdir(path) if not name.endswith(".deleted")]


def test_what_retention_takes_from_the_log_goes_from_the_copy(logs: LogManager, fs: CrashFileSystem) -> None:
    log = filled(logs)
    copy = logs.moves.begin(KEY, "/two")
    copy.catch_up(log, UNLIMITED)
    before, kept = files(fs, copy.directory), values(log)
    assert [report.deleted_segments > 0 for report in logs.retention()] == [True]
    copy.catch_up(log, UNLIMITED)
    assert len(files(fs, copy.directory)) < len(before)
    moved = finish_move(logs, KEY)
    assert values(moved) == kept[moved.log_start_offset :]
    assert moved.verify().findings == ()


def test_what_compaction_makes_of_the_log_goes_to_the_copy(
    logs: LogManager, fs: CrashFileSystem, clock: ManualClock
) -> None:
    log = filled(logs, cleanup_policy="compact")
    cleaner = LogCleaner(fs, clock, logs, CleanerConfig())
    copy = logs.moves.begin(KEY, "/two")
    copy.catch_up(log, UNLIMITED)
    [report] = cleaner.run(force=True)
    assert report.records_dropped > 0
    kept = values(log)
    moved = finish_move(logs, KEY)
    assert values(moved) == kept
    assert moved.verify().findings == ()
    cleaner.follow(log, moved)
    for path, offsets in (("/one", {}), ("/two", {KEY: report.first_dirty_offset})):
        assert read_offsets(fs, f"{path}/cleaner-offset-checkpoint") == offsets
    [again] = cleaner.run(force=True)
    assert again.first_dirty_offset >= report.first_dirty_offset


def test_the_copy_is_the_log_byte_for_byte(logs: LogManager, fs: CrashFileSystem) -> None:
    log = filled(logs)
    logs.moves.begin(KEY, "/two")
    before = {name: read_file(fs, f"{log.directory}/{name}") for name in files(fs, log.directory)}
    moved = finish_move(logs, KEY)
    after = {name: read_file(fs, f"{moved.directory}/{name}") for name in files(fs, moved.directory)}
    assert {name for name in before if name.endswith(".log")} < after.keys()
    assert [name for name in before if name.endswith((".log", ".metadata")) and before[name] != after[name]] == []
    assert sorted(after.keys() - before.keys()) == [
        *(f"{40:020}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")),
        "leader-epoch-checkpoint",
    ]


def test_each_of_a_producers_last_five_batches_is_known_after_a_move(logs: LogManager) -> None:
    filled(logs)
    logs.moves.begin(KEY, "/two")
    moved = finish_move(logs, KEY)
    for offset in range(35, 40):
        record = NewRecord(b"again", timestamp_ms=1_700_000_000_000)
        info = moved.append(encode_batch([record], producer=BatchProducer(7, 0, offset)), leader_epoch=0)
        assert info.first_offset == offset
    append(moved, 1)
    assert moved.log_end_offset == 41


def test_a_reader_goes_on_in_a_folder_that_is_gone(logs: LogManager, fs: CrashFileSystem, clock: ManualClock) -> None:
    log = filled(logs)
    found = log.read_or_find(0, 300, up_to_offset=40, read_at_once_bytes=0)
    assert isinstance(found, LogSlice)
    expected = found.read()
    logs.moves.begin(KEY, "/two")
    finish_move(logs, KEY)
    clock.advance(1000)
    assert logs.remove_deleted() == 1
    assert [name for name in fs.listdir("/one") if name.startswith("t-0")] == []
    assert found.read() == expected
    with pytest.raises(StorageError, match="closed"):
        append(log, 1)


def test_checkpoints_of_both_folders_follow_the_log(logs: LogManager, fs: CrashFileSystem) -> None:
    log = filled(logs)
    log.raise_log_start_offset(17)
    logs.checkpoint_high_watermarks({KEY: 40})
    logs.checkpoint()
    logs.moves.begin(KEY, "/two")
    finish_move(logs, KEY)
    assert read_offsets(fs, "/two/recovery-point-offset-checkpoint") == {KEY: 40}
    assert read_offsets(fs, "/two/log-start-offset-checkpoint") == {KEY: 17}
    assert read_offsets(fs, "/two/replication-offset-checkpoint") == {KEY: 40}
    logs.checkpoint()
    assert read_offsets(fs, "/one/recovery-point-offset-checkpoint") == {}


def test_a_dropped_copy_stops_and_goes(logs: LogManager, fs: CrashFileSystem, clock: ManualClock) -> None:
    log = filled(logs)
    copy = logs.moves.begin(KEY, "/two")
    copy.catch_up(log, UNLIMITED)
    logs.moves.drop(KEY)
    logs.moves.rename_dropped()
    assert [name for name in fs.listdir("/two") if name.endswith("-future")] == []
    append(log, 1)
    with pytest.raises(CompactionStoppedError):
        copy.catch_up(log, UNLIMITED)
    clock.advance(1000)
    assert logs.remove_deleted() == 1
    assert [name for name in fs.listdir("/two") if name.startswith("t-0")] == []


def test_new_logs_go_where_the_fewest_are_or_where_they_were_wished(logs: LogManager) -> None:
    filled(logs, 1)
    logs.moves.begin(KEY, "/two")
    assert logs.create(TopicPartition("t", 1), TOPIC_ID, {}).directory == "/three/t-1"
    logs.dirs.prefer(TopicPartition("t", 2), "/one")
    assert logs.create(TopicPartition("t", 2), TOPIC_ID, {}).directory == "/one/t-2"


def test_nothing_is_moved_or_wished_while_a_folder_is_offline(logs: LogManager, fs: CrashFileSystem) -> None:
    log = filled(logs, 3)
    copy = logs.moves.begin(KEY, "/two")
    fs.fail("fsync")
    with pytest.raises(StorageError):
        copy.catch_up(logs.create(KEY, TOPIC_ID, {}), UNLIMITED)
    offline = [path for path, found in logs.by_data_dir().items() if found is None]
    assert offline in (["/one"], ["/two"])
    logs.moves.drop(KEY)
    with pytest.raises(StorageError, match="offline"):
        logs.moves.begin(KEY, "/three")
    assert values(log) == [b"0", b"1", b"2"]
    logs.dirs.prefer(TopicPartition("t", 1), offline[0])
    with pytest.raises(StorageError, match="offline"):
        logs.create(TopicPartition("t", 1), TOPIC_ID, {})


@pytest.mark.parametrize("known", [None, 25])
def test_the_high_watermark_moves_too(logs: LogManager, known: int | None) -> None:
    log = filled(logs)
    if known is not None:
        log.high_watermark = known
    logs.moves.begin(KEY, "/two")
    moved = finish_move(logs, KEY)
    append(moved, 1)
    assert moved.high_watermark == (41 if known is None else known)
