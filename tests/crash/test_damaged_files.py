"""Files of a data folder, damaged in any way: a start gives true records or a typed error, and never anything else."""

import uuid
from contextlib import suppress
from random import Random

import pytest

from millrace.errors import MillraceError
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.compression import Codec
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

T, T_ID = TopicPartition("t", 0), uuid.UUID(int=1)
FOLDER = "/data/t-0"
SETTINGS = {"segment.bytes": "600", "index.interval.bytes": "100", "file.delete.delay.ms": "0"}
NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 30


def start(fs: CrashFileSystem) -> LogManager:
    manager = LogManager(fs, ManualClock(NOW_MS), ["/data"], {}, "c" * 22, 1)
    manager.start()
    return manager


def records(first: int) -> list[NewRecord]:
    return [NewRecord(b"value %d" % offset, timestamp_ms=NOW_MS + offset) for offset in range(first, first + 3)]


def filled() -> CrashFileSystem:
    """Returns a disk with all files of a log: segments, indexes, snapshots, transactions, epochs, checkpoints."""
    fs = CrashFileSystem()
    manager = start(fs)
    log = manager.create(T, T_ID, SETTINGS)
    for step in range(12):
        codec = list(Codec)[step % len(Codec)]
        producer = BatchProducer(7, 0, step * 3)
        batch = encode_batch(records(log.log_end_offset), codec=codec, producer=producer, flags=TRANSACTIONAL_FLAG)
        log.append(batch, leader_epoch=step // 5)
        if step % 3 == 2:
            kind = ControlType.ABORT if step % 2 else ControlType.COMMIT
            append_marker(log, EndTransactionMarker(kind, 0), producer_id=7, producer_epoch=0, leader_epoch=step // 5)
    log.raise_log_start_offset(1)
    manager.checkpoint_high_watermarks({T: log.log_end_offset})
    manager.close()
    return fs


GOOD = filled()
PATHS = [f"{folder}/{name}" for folder in ("/data", FOLDER) for name in GOOD.listdir(folder) if name != "t-0"]


def read(fs: CrashFileSystem, path: str) -> bytes:
    fd = fs.open(path)
    try:
        return fs.pread(fd, EVERYTHING, 0)
    finally:
        fs.close(fd)


def write(fs: CrashFileSystem, path: str, content: bytes) -> None:
    fd = fs.open(path)
    fs.truncate(fd, 0)
    fs.pwritev(fd, [content], 0)
    fs.close(fd)


def damaged(content: bytes, chance: Random, other: bytes) -> bytes:
    """Returns the content with a flipped bit, other bytes, a cut, a longer tail or a part of another file."""
    at = chance.randint(0, max(len(content) - 1, 0))
    length = chance.choice([1, 1, 2, 4, 8, 60])
    run = chance.choice([bytes(length), b"\xff" * length, chance.randbytes(length)])
    flipped = bytes(byte ^ 1 << chance.randint(0, 7) for byte in content[at : at + 1])
    return chance.choice(
        [
            content[:at] + flipped + content[at + 1 :],
            content[:at] + run + content[at + length :],
            content[:at] + run + content[at:],
            content[:at],
            content[:at] + content[at + length :],
            content + run,
            content[:at] + other[chance.randint(0, len(other)) :],
            chance.randbytes(chance.randint(0, 200)),
            b"",
        ]
    )


def values_of(log: Log) -> dict[int, bytes | None]:
    found, offset = {}, log.log_start_offset
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        batches = list(walk(data))
        found |= {record.offset: record.value for record in decode_records(data)}
        assert batches[-1][1].next_offset > offset
        offset = batches[-1][1].next_offset
    return found


def use(log: Log) -> None:
    """Does with a log all that a broker does."""
    log.verify()
    log.offset_for_timestamp(NOW_MS + 10)
    log.offset_of_max_timestamp()
    log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    log.last_stable_offset(log.log_end_offset)
    log.append(encode_batch([NewRecord(b"new", timestamp_ms=NOW_MS)]), leader_epoch=9)
    log.apply_retention()
    log.flush()


WHOLE = values_of(start(GOOD.after_kill()).create(T, T_ID, SETTINGS))


@pytest.mark.usefixtures("without_logs")
@pytest.mark.soak(rounds=400, minutes=4)
def test_a_start_on_damaged_files_gives_true_records_or_a_typed_error(rounds, record_property):
    outcomes = {"opened": 0, "refused": 0}
    for seed in rounds:
        chance = Random(seed)
        fs = GOOD.after_kill()
        for path in chance.sample(PATHS, chance.choice([1, 1, 2, 5])):
            write(fs, path, damaged(read(fs, path), chance, read(fs, chance.choice(PATHS))))
        if is_recovered := chance.random() < 0.5:
            for path in ("/data/.kafka_cleanshutdown", "/data/recovery-point-offset-checkpoint"):
                fs.unlink(path)
        outcomes[outcome_of(fs, is_recovered=is_recovered)] += 1
    record_property("inputs", sum(outcomes.values()))
    for name, count in outcomes.items():
        record_property(name, count)
    assert min(outcomes.values()) > 0


def outcome_of(fs: CrashFileSystem, *, is_recovered: bool) -> str:
    """Opens and uses the log. After a recovery, which reads all batches, each record must be one that was written."""
    manager = LogManager(fs, ManualClock(NOW_MS), ["/data"], {}, "c" * 22, 1)
    try:
        manager.start()
        log = manager.create(T, T_ID, SETTINGS)
        if is_recovered:
            assert values_of(log).items() <= WHOLE.items()
        use(log)
    except MillraceError:
        return "refused"
    else:
        return "opened"
    finally:
        with suppress(MillraceError):
            manager.close()
        assert fs.open_files == 0


def log_of_three(fs: CrashFileSystem, codec: Codec, *, clean: bool) -> Log:
    if not fs.exists(FOLDER):
        fs.mkdir(FOLDER)
    log = Log(fs, ManualClock(), FOLDER, T, LogConfig(), clean=clean)
    while not clean and log.log_end_offset < 9:
        log.append(encode_batch(records(log.log_end_offset), codec=codec), leader_epoch=3)
    return log


@pytest.mark.soak(rounds=1, minutes=1)
@pytest.mark.parametrize("codec", Codec)
def test_every_byte_of_a_batch_that_has_another_value_is_noticed(rounds, codec, record_property):
    """By recovery and by the check. The leader epoch is the broker's own, and outside the batch's CRC."""
    good = CrashFileSystem()
    log_of_three(good, codec, clean=False).close()
    path = f"{FOLDER}/{0:020d}.log"
    content = read(good, path)
    size, flips = len(content) // 3, 0
    for mask in (number % 255 + 1 for number in rounds):
        for position in set(range(size, 2 * size)) - set(range(size + 12, size + 16)):
            fs = good.after_kill()
            write(fs, path, content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :])
            log = log_of_three(fs.after_kill(), codec, clean=True)
            assert log.recovery.truncated_bytes or log.verify().findings, (position, mask)
            log = Log(fs, ManualClock(), FOLDER, T, LogConfig())
            assert (log.log_end_offset, log.recovery.truncated_bytes) == (3, 2 * size), (position, mask)
            flips += 1
        if mask == 255:
            break
    record_property("flips", flips)
    assert flips >= size - 4


def test_what_lies_beside_an_emptied_segment_is_not_trusted():
    fs = GOOD.after_kill()
    write(fs, f"{FOLDER}/{13:020d}.log", b"")
    write(fs, f"{FOLDER}/{13:020d}.txnindex", b"?")
    manager = start(fs)
    use(manager.create(T, T_ID, SETTINGS))
    manager.close()
