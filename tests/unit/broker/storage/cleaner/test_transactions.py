"""Which batches of transactions are void, and what compaction makes of them in a log."""

import uuid
from collections.abc import Sequence

import pytest

from millrace.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from millrace.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, read_header, walk
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, CompactionReport, Log, LogCleaner, LogManager, TopicPartition
from millrace_broker.storage.cleaner.cleaner import CleanedTransactions
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

T = TopicPartition("t", 0)
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
RETENTION_MS = 5000


def data(offset: int, producer_id: int, flags: int = TRANSACTIONAL_FLAG) -> bytes:
    return encode_batch(
        [NewRecord(b"v", key=b"k")], base_offset=offset, producer=BatchProducer(producer_id, 0, 0), flags=flags
    )


def marker(offset: int, producer_id: int, how: ControlType) -> bytes:
    batch = encode_marker(EndTransactionMarker(how, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
    return offset.to_bytes(8, "big") + bytes(batch)[8:]


def void(transactions: CleanedTransactions, batches: Sequence[bytes]) -> list[bool]:
    return [transactions.is_void(read_header(batch), memoryview(batch)) for batch in batches]


def test_batches_of_aborted_transactions_are_void_and_those_of_the_same_producers_others_are_not() -> None:
    aborted = AbortedTransaction(7, 2, 4, 2)
    transactions = CleanedTransactions([aborted])
    batches = [
        data(0, 7), marker(1, 7, COMMIT), data(2, 7), data(3, 8), marker(4, 7, ABORT), data(5, 7), marker(6, 7, COMMIT),
        marker(7, 8, COMMIT), data(8, 7, flags=0),
    ]  # fmt: skip
    assert void(transactions, batches) == [False, False, True, False, False, False, False, False, False]
    assert transactions.take_needed() == [aborted]
    assert transactions.take_needed() == []


def test_a_marker_without_its_transaction_is_void_and_its_index_entry_not_needed() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 2, 4, 2)])
    assert void(transactions, [marker(4, 7, ABORT), marker(5, 8, COMMIT)]) == [True, True]
    assert transactions.take_needed() == []


def test_a_transaction_that_began_before_the_pass_counts() -> None:
    transactions = CleanedTransactions([AbortedTransaction(7, 2, 14, 2)])
    assert void(transactions, [data(10, 7), marker(14, 7, ABORT)]) == [True, False]


def test_a_control_batch_without_records_is_void_and_one_of_another_type_is_not() -> None:
    other = encode_batch([NewRecord(b"", key=bytes(3) + b"\x02")], flags=CONTROL_FLAG)
    empty = read_header(other)._replace(record_count=0, batch_length=49)
    transactions = CleanedTransactions([])
    assert transactions.is_void(empty, memoryview(b"")) is True
    assert void(transactions, [other]) == [False]


class Store:
    """A compacted log on a disk in memory."""

    def __init__(self, fs: CrashFileSystem | None = None) -> None:
        self.fs = fs or CrashFileSystem()
        self.clock = ManualClock(1_000_000)
        self.manager = LogManager(self.fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.cleaner = LogCleaner(self.fs, self.clock, self.manager, CleanerConfig())
        properties = {
            "cleanup.policy": "compact", "segment.bytes": "400", "delete.retention.ms": str(RETENTION_MS),
            "file.delete.delay.ms": "0",
        }  # fmt: skip
        self.log: Log = self.manager.create(T, uuid.UUID(int=1), properties)

    def send(self, key: str, sequence: int, *, epoch: int = 0) -> None:
        record = NewRecord(b"%d" % self.log.log_end_offset, key=key.encode(), timestamp_ms=900_000)
        batch = encode_batch([record], producer=BatchProducer(7, epoch, sequence), flags=TRANSACTIONAL_FLAG)
        self.log.append(batch, leader_epoch=0)

    def end(self, how: ControlType, *, epoch: int = 0) -> None:
        append_marker(self.log, EndTransactionMarker(how, 0), producer_id=7, producer_epoch=epoch, leader_epoch=0)

    def fill(self, count: int = 12) -> None:
        """Appends so many records that everything before them is in closed segments."""
        for number in range(count):
            self.log.append(encode_batch([NewRecord(b"x", key=b"fill%d" % (number % 2))]), leader_epoch=0)

    def fill_with_new_keys(self, count: int) -> None:
        """Appends records of another producer that compaction keeps, each in a segment of its own."""
        for _ in range(count):
            record = NewRecord(bytes(250), key=b"only%d" % self.log.log_end_offset)
            entry = self.log.producers.entries.get(8)
            producer = BatchProducer(8, 0, 0 if entry is None else entry.last_sequence + 1)
            self.log.append(encode_batch([record], producer=producer), leader_epoch=0)

    def compact(self) -> CompactionReport:
        (report,) = self.cleaner.run(force=True)
        self.manager.release_replaced()
        assert report.error == ""
        return report

    def below(self, offset: int) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        position = 0
        while position < offset:
            found += [header for _, header in walk(self.log.read(position, 200, up_to_offset=self.log.log_end_offset))]
            position = found[-1].next_offset
        return [header for header in found if header.base_offset < offset]

    def read_keys(self) -> list[bytes | None]:
        found, position = [], 0
        while batches := self.log.read(position, 200, up_to_offset=self.log.log_end_offset):
            found += [record.key for record in decode_records(batches)]
            position = [header for _, header in walk(batches)][-1].next_offset
        return found

    def aborted(self) -> list[int]:
        return [each.first_offset for each in self.log.aborted_transactions(0, self.log.log_end_offset)]


def test_aborted_records_go_at_once_then_their_index_entry_then_the_marker() -> None:
    store = Store()
    store.send("kept", 0)
    store.end(COMMIT)
    store.send("gone", 1)
    store.end(ABORT)
    store.send("last", 2)
    store.end(COMMIT)
    store.fill()
    store.compact()
    assert b"gone" not in store.read_keys()
    assert {b"kept", b"last"} <= set(store.read_keys())
    assert [header.base_offset for header in store.below(6)] == [0, 1, 3, 4, 5]
    assert store.aborted() == [2]
    store.fill()
    store.compact()
    (abort,) = [header for header in store.below(6) if header.base_offset == 3]
    assert abort.delete_horizon_ms == store.clock.now_ms() + RETENTION_MS
    assert store.aborted() == []
    assert not [name for name in store.fs.listdir(store.log.directory) if name.endswith(".txnindex")]
    store.clock.advance(RETENTION_MS - 1)
    store.fill()
    store.compact()
    assert [header.base_offset for header in store.below(6)] == [0, 1, 3, 4, 5]
    store.clock.advance(1)
    store.fill()
    store.compact()
    assert [header.base_offset for header in store.below(6)] == [0, 1, 4, 5]


def test_a_committed_record_supersedes_and_an_aborted_one_does_not() -> None:
    store = Store()
    for key, sequence, how in (("a", 0, COMMIT), ("b", 1, COMMIT), ("a", 2, ABORT), ("b", 3, COMMIT), ("z", 4, COMMIT)):
        store.send(key, sequence)
        store.end(how)
    store.fill()
    store.compact()
    assert [header.base_offset for header in store.below(10) if header.record_count and not header.is_control] == [
        0,
        6,
        8,
    ]


def test_a_batch_that_bears_the_last_sequence_keeps_its_marker_and_its_index_entry() -> None:
    store = Store()
    store.send("gone", 0)
    store.end(ABORT)
    store.fill()
    for _ in range(3):
        store.compact()
        store.clock.advance(RETENTION_MS)
        store.fill()
    assert [(header.base_offset, header.record_count) for header in store.below(2)] == [(0, 0), (1, 1)]
    assert store.aborted() == [0]
    again = Store(store.fs.after_kill())
    with pytest.raises(OutOfOrderSequenceError):
        again.send("gap", 9)
    again.send("next", 1)


def test_the_last_marker_of_a_producer_stays_for_its_epoch() -> None:
    store = Store()
    store.send("gone", 0)
    store.end(ABORT, epoch=1)
    store.fill()
    for _ in range(4):
        store.compact()
        store.clock.advance(RETENTION_MS)
        store.fill()
    (last,) = store.below(2)
    assert (last.base_offset, last.record_count, last.producer_epoch) == (1, 1, 1)
    again = Store(store.fs.after_kill())
    with pytest.raises(InvalidProducerEpochError):
        again.send("old", 1)


def test_compaction_ends_before_the_first_open_transaction() -> None:
    store = Store()
    store.fill(20)
    first_open = store.log.log_end_offset
    store.send("open", 0)
    store.fill(20)
    report = store.compact()
    assert 0 < report.first_dirty_offset <= first_open
    assert [header.base_offset for header in store.below(first_open + 10)][-10:] == list(
        range(first_open, first_open + 10)
    )
    store.end(ABORT)
    assert store.compact().first_dirty_offset > first_open
    assert b"open" not in store.read_keys()


def test_a_recovery_from_a_compacted_segment_finds_no_transaction_open_whose_marker_is_gone() -> None:
    store = Store()
    store.send("gone", 0)
    store.fill_with_new_keys(5)
    store.end(ABORT)
    store.fill_with_new_keys(5)
    store.clock.advance(store.log.config.producer_id_expiration_ms)
    assert store.manager.expire_producers() == 2
    for _ in range(4):
        store.compact()
        store.clock.advance(RETENTION_MS)
        store.fill()
    assert not [header for header in store.below(7) if header.producer_id == 7]
    bases = [segment.base_offset for segment in store.log.closed_segments]
    store.manager.close()
    for base in bases:
        fs = store.fs.after_kill()
        fd = fs.open(f"{store.log.directory}/{base:020d}.timeindex")
        fs.truncate(fd, 0)
        fs.close(fd)
        log = Store(fs).log
        assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
