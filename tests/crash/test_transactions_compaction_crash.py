"""The power is cut at every operation of a compaction among transactions: what was committed is there, no more."""

import uuid
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker
from millrace_support.read_committed import committed_records

T = TopicPartition("t", 0)
FOLDER = "/data/t-0"
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "450",
    "index.interval.bytes": "100",
    "file.delete.delay.ms": "0",
    "delete.retention.ms": "0",
}
CONFIG = CleanerConfig(dedupe_buffer_bytes=24 * 9)
TRANSACTIONS = 10
KEYS = 3


class Store:
    """A log into which two producers write: every third transaction is aborted, and they overlap."""

    def __init__(self, fs: CrashFileSystem, now_ms: int = 1_000_000) -> None:
        self.fs = fs
        self.clock = ManualClock(now_ms)
        self.manager = LogManager(fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.log = self.manager.create(T, uuid.UUID(int=1), COMPACT)

    def write(self, transactions: range) -> None:
        for number in transactions:
            self.send(number, part=0)
            if number > transactions.start:
                self.end(number - 1)
            self.send(number, part=1)
        self.end(transactions[-1])

    def send(self, number: int, part: int) -> None:
        key = b"%d" % (number % KEYS) if part else b"both"
        record = NewRecord(b"%d" % number, key=key, timestamp_ms=900_000)
        producer = BatchProducer(7 + number % 2, 0, number // 2 * 2 + part)
        self.log.append(encode_batch([record], producer=producer, flags=TRANSACTIONAL_FLAG), leader_epoch=0)

    def end(self, number: int) -> None:
        how = ControlType.COMMIT if number % 3 else ControlType.ABORT
        marker = EndTransactionMarker(how, 0)
        append_marker(self.log, marker, producer_id=7 + number % 2, producer_epoch=0, leader_epoch=0)

    def compact(self) -> None:
        (report,) = LogCleaner(self.fs, self.clock, self.manager, CONFIG).run(force=True)
        assert report.error == ""
        self.manager.release_replaced()


def filled() -> CrashFileSystem:
    """Part of it was compacted before, so that there are markers of which nothing is left."""
    store = Store(CrashFileSystem())
    store.write(range(TRANSACTIONS // 2))
    store.compact()
    store.write(range(TRANSACTIONS // 2, TRANSACTIONS))
    store.log.flush()
    return store.fs.after_kill()


def committed(log: Log) -> dict[bytes | None, bytes | None]:
    found: dict[bytes | None, bytes | None] = {}
    offset, end = 0, log.last_stable_offset(log.log_end_offset)
    while data := log.read(offset, 500, up_to_offset=end):
        next_offset = [header for _, header in walk(data)][-1].next_offset
        aborted = [(each.producer_id, each.first_offset) for each in log.aborted_transactions(offset, next_offset)]
        found |= {record.key: record.value for record in committed_records(data, aborted)}
        offset = next_offset
    assert offset == end
    return found


GOOD = filled()
EXPECTED = committed(Store(GOOD.after_kill()).log)
LATER_MS = 2_000_000


class Workload:
    """The log is opened and compacted."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self.fs = fs
        self.is_open = False

    def run(self) -> None:
        store = Store(self.fs, LATER_MS)
        self.is_open = True
        store.compact()
        store.log.remove_deleted()
        store.log.flush()

    def each_change(self) -> Iterator[int]:
        """Yields the number of each change once the log is open."""
        return (number for number in self.fs.each_change(self.run) if self.is_open)


def check(fs: CrashFileSystem) -> None:
    store = Store(fs, LATER_MS)
    log = store.log
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert committed(log) == EXPECTED
    assert log.verify().findings == ()
    assert not [name for name in fs.listdir(FOLDER) if name.endswith((".cleaned", ".swap", ".deleted"))]
    store.write(range(TRANSACTIONS, TRANSACTIONS + 2))
    before = committed(log)
    store.compact()
    assert committed(log) == before
    store.manager.close()
    assert fs.open_files == 0


def test_the_model_is_what_was_committed() -> None:
    last = {b"both": b"8"} | {b"%d" % (number % KEYS): b"%d" % number for number in range(TRANSACTIONS) if number % 3}
    assert last == EXPECTED


@pytest.mark.parametrize("seed", [None, 1])
def test_committed_records_survive_a_power_cut_at_any_operation(seed: int | None) -> None:
    workload = Workload(GOOD.after_kill())
    for cut_at in workload.each_change():
        check(workload.fs.after_cut(None if seed is None else Random(seed * 1000 + cut_at)))


@pytest.mark.parametrize("lost", [(), ("checkpoint",), ("checkpoint", ".snapshot"), ("checkpoint", ".txnindex")])
def test_a_killed_process_leaves_transactions_as_they_were(lost: tuple[str, ...]) -> None:
    workload = Workload(GOOD.after_kill())
    for _ in islice(workload.each_change(), 0, None, 2 if lost else 1):
        fs = workload.fs.after_kill()
        for folder in ("/data", FOLDER):
            for name in fs.listdir(folder):
                if lost and name.endswith(lost):
                    fs.unlink(f"{folder}/{name}")
        check(fs)
