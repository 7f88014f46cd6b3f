"""Compaction among transactions: a reader of committed records makes of the log what it made of it before."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millrace.errors import RecordTooLargeError
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.compression import Codec
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, LogCleaner, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError
from millrace_support.markers import append_marker
from millrace_support.read_committed import committed_records

T = TopicPartition("t", 0)
NOW_MS = 1_000_000
SLOT_BYTES = 24
EPOCH = 0
PRODUCERS = (7, 8, 9)

RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=st.none() | st.binary(min_size=1, max_size=30),
        key=st.sampled_from([b"a", b"b", b"c", b"d"]),
        timestamp_ms=st.integers(NOW_MS, NOW_MS + 5000),
        headers=st.just(()),
    ),
    min_size=1,
    max_size=3,
)


@dataclass(frozen=True)
class Appended:
    """What lies at one offset: a record, or the marker that ends its producer's transaction."""

    producer: int | None
    record: NewRecord | None = None
    transactional: bool = False
    marker: ControlType | None = None


def aborted_and_open(appended: list[Appended]) -> tuple[set[int], dict[int, int]]:
    """The offsets of aborted records, and the first offset of each producer's open transaction."""
    running: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for offset, each in enumerate(appended):
        if each.marker is not None:
            ended = running.pop(each.producer, [])
            aborted |= set(ended) if each.marker is ControlType.ABORT else set()
        elif each.transactional:
            running.setdefault(each.producer, []).append(offset)
    return aborted, {producer: offsets[0] for producer, offsets in running.items()}


def as_map(pairs: Iterator[tuple[bytes, bytes | None]]) -> Mapping[bytes, bytes]:
    """What a table fed from a compacted topic holds."""
    return {key: value for key, value in dict(pairs).items() if value is not None}


class TransactionsCompacted(RuleBasedStateMachine):
    """`appended[n]` lies at offset n; `start` and `flushed` are offsets."""

    @initialize(
        segment_bytes=st.sampled_from([250, 500, 2000]),
        slots=st.sampled_from([5, 7, 1000]),
        delete_retention_ms=st.sampled_from([0, 1000]),
    )
    def open_first(self, segment_bytes: int, slots: int, delete_retention_ms: int) -> None:
        self.fs = CrashFileSystem()
        self.clock = ManualClock(NOW_MS)
        self.properties = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            "index.interval.bytes": "100",
            "file.delete.delay.ms": "0",
            "delete.retention.ms": str(delete_retention_ms),
        }
        self.config = CleanerConfig(dedupe_buffer_bytes=slots * SLOT_BYTES)
        self.appended: list[Appended] = []
        self.start = self.flushed = 0
        self.open()

    def open(self) -> None:
        self.manager = LogManager(self.fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.cleaner = LogCleaner(self.fs, self.clock, self.manager, self.config)
        self.log = self.manager.create(T, uuid.UUID(int=1), self.properties)

    def sequence_of(self, producer: int) -> int:
        return sum(each.producer == producer and each.record is not None for each in self.appended)

    def is_known_by_a_marker_alone(self, producer: int) -> bool:
        """Its batches are deleted and its snapshot lost: as in Kafka, it has to go on with a new epoch."""
        entry = self.log.producers.entries.get(producer)
        return entry is not None and entry.last_sequence < 0 < self.sequence_of(producer)

    @rule(records=RECORDS, codec=st.sampled_from([Codec.NONE, Codec.ZSTD]))
    def append(self, records: list[NewRecord], codec: Codec) -> None:
        with suppress(RecordTooLargeError):
            self.log.append(encode_batch(records, codec=codec), leader_epoch=0)
            self.appended += [Appended(None, record) for record in records]

    @rule(
        producer=st.sampled_from(PRODUCERS),
        batches=st.lists(RECORDS, min_size=1, max_size=3),
        in_transaction=st.booleans(),
    )
    def append_with_a_producer(self, *, producer: int, batches: list[list[NewRecord]], in_transaction: bool) -> None:
        if self.is_known_by_a_marker_alone(producer):
            return
        in_transaction |= producer in aborted_and_open(self.appended)[1]
        for records in batches:
            batch = encode_batch(
                records,
                producer=BatchProducer(producer, EPOCH, self.sequence_of(producer)),
                flags=TRANSACTIONAL_FLAG if in_transaction else 0,
            )
            with suppress(RecordTooLargeError):
                self.log.append(batch, leader_epoch=0)
                self.appended += [Appended(producer, record, in_transaction) for record in records]

    @rule(producer=st.sampled_from(PRODUCERS), how=st.sampled_from(ControlType))
    def end_transaction(self, producer: int, how: ControlType) -> None:
        marker = EndTransactionMarker(how, 0)
        append_marker(self.log, marker, producer_id=producer, producer_epoch=EPOCH, leader_epoch=0)
        self.appended.append(Appended(producer, marker=how))

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    @rule(milliseconds=st.integers(0, 1500))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(choice=st.floats(0, 1))
    def delete_records(self, choice: float) -> None:
        """Only what is on the disk: an end of a transaction that a power cut can take back has decided nothing."""
        self.flush()
        self.start += int(choice * (self.stable_offset() - self.start))
        self.log.raise_log_start_offset(self.start)
        list(self.manager.retention())
        self.manager.remove_deleted()

    @rule(force=st.booleans())
    def compact(self, *, force: bool) -> None:
        reports = self.cleaner.run(force=force)
        self.manager.release_replaced()
        self.flushed = self.log.recovery_point
        for report in reports:
            assert report.error == ""
            assert report.first_dirty_offset <= self.stable_offset()
            self.check_compacted(report.first_dirty_offset)

    def check_compacted(self, first_dirty_offset: int) -> None:
        """Below there each key is there once at most, and nothing that was aborted."""
        aborted, _ = aborted_and_open(self.appended)
        last = {
            each.record.key: offset
            for offset, each in enumerate(self.appended[:first_dirty_offset])
            if each.record is not None and offset not in aborted
        }
        survivors = [record for record in self.survivors() if record.offset < first_dirty_offset]
        assert all(last.get(record.key) == record.offset for record in survivors)

    @rule(operation=st.integers(1, 80), seed=st.none() | st.integers(0, 1 << 16))
    def compact_and_crash(self, operation: int, seed: int | None) -> None:
        self.fs.cut_power_at(self.fs.operations + operation)
        with suppress(PowerCutError):
            self.cleaner.run(force=True)
        self.flushed = max(self.flushed, self.log.recovery_point)
        if seed is None:
            self.reopen_after_kill()
        else:
            self.reopen_after_power_cut(seed)

    @rule()
    def reopen_clean(self) -> None:
        self.manager.close()
        assert self.fs.open_files == 0
        self.open()
        self.flushed = len(self.appended)

    @rule()
    def reopen_after_kill(self) -> None:
        self.fs = self.fs.after_kill()
        self.open()
        assert self.log.log_end_offset == len(self.appended)
        self.start = self.log.log_start_offset

    @rule(seed=st.integers(0, 1 << 16))
    def reopen_after_power_cut(self, seed: int) -> None:
        self.fs = self.fs.after_cut(Random(seed))
        self.open()
        assert self.flushed <= self.log.log_end_offset <= len(self.appended)
        self.appended = self.appended[: self.log.log_end_offset]
        self.start = self.log.log_start_offset

    @rule()
    def reopen_without_checkpoints_and_snapshots(self) -> None:
        """All that is known of producers is then in the batches that compaction has left."""
        self.fs = self.fs.after_kill()
        folder = f"/data/{T}"
        for name in self.fs.listdir(folder):
            if name.endswith((".snapshot", ".txnindex", ".index")):
                self.fs.unlink(f"{folder}/{name}")
        if self.fs.exists("/data/recovery-point-offset-checkpoint"):
            self.fs.unlink("/data/recovery-point-offset-checkpoint")
        self.open()
        assert self.log.log_end_offset == len(self.appended)
        self.start = self.log.log_start_offset

    def fetches(self, up_to_offset: int) -> Iterator[tuple[int, int, bytes]]:
        offset = self.log.log_start_offset
        while data := self.log.read(offset, 300, up_to_offset=up_to_offset):
            next_offset = [header for _, header in walk(data)][-1].next_offset
            yield offset, next_offset, data
            offset = next_offset
        assert offset == up_to_offset

    def survivors(self) -> list[Record]:
        fetched = (decode_records(data) for _, _, data in self.fetches(self.log.log_end_offset))
        return [record for records in fetched for record in records if record.offset >= self.start]

    def committed(self) -> list[Record]:
        return [
            record
            for offset, end, data in self.fetches(self.stable_offset())
            for record in committed_records(
                data, [(each.producer_id, each.first_offset) for each in self.log.aborted_transactions(offset, end)]
            )
            if record.offset >= max(offset, self.start)
        ]

    def stable_offset(self) -> int:
        return self.log.last_stable_offset(self.log.log_end_offset)

    @invariant()
    def open_transactions_are_those_of_the_model(self) -> None:
        _, running = aborted_and_open(self.appended)
        assert self.stable_offset() == min(running.values(), default=len(self.appended))

    @invariant()
    def a_reader_of_committed_records_makes_the_same_of_it(self) -> None:
        aborted, _ = aborted_and_open(self.appended)
        expected = (
            (each.record.key, each.record.value)
            for offset, each in enumerate(self.appended[: self.stable_offset()])
            if each.record is not None and offset not in aborted and offset >= self.start
        )
        assert as_map((record.key, record.value) for record in self.committed()) == as_map(expected)

    @invariant()
    def records_are_what_was_appended_at_their_offsets(self) -> None:
        survivors = self.survivors()
        offsets = [record.offset for record in survivors]
        assert offsets == sorted(set(offsets))
        for record in survivors:
            sent = self.appended[record.offset].record
            assert (record.key, record.value, record.timestamp_ms) == (sent.key, sent.value, sent.timestamp_ms)

    @invariant()
    def a_reader_of_everything_misses_what_was_aborted_or_superseded_by_what_was_not(self) -> None:
        aborted, _ = aborted_and_open(self.appended)
        kept = {record.offset for record in self.survivors()}
        last = {
            each.record.key: offset
            for offset, each in enumerate(self.appended)
            if each.record is not None and offset not in aborted
        }
        assert {
            offset
            for offset in last.values()
            if offset >= self.start and self.appended[offset].record.value is not None
        } <= kept
        assert all(offset in kept for offset in range(max(self.stable_offset(), self.start), len(self.appended))
                   if self.appended[offset].record is not None)  # fmt: skip

    @invariant()
    def producers_go_on_where_they_were(self) -> None:
        for producer in PRODUCERS:
            written = [
                offset
                for offset, each in enumerate(self.appended)
                if each.producer == producer and each.record is not None
            ]
            if written and written[-1] >= self.start:
                assert self.log.producers.entries[producer].last_sequence == len(written) - 1

    @invariant()
    def the_verifier_finds_nothing(self) -> None:
        assert self.log.verify().findings == ()


TestTransactionsCompacted = TransactionsCompacted.TestCase
TestTransactionsCompacted.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
