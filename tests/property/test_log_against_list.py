"""A log, whatever is done to it, is a list of records with a first offset."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millrace.descriptor_pool import PooledFileSystem
from millrace.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, RecordError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogAppendInfo, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

FOLDER = "/data/t-0"
START_MS = 1_000_000

RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=st.none() | st.binary(max_size=40),
        key=st.none() | st.binary(max_size=5),
        timestamp_ms=st.integers(START_MS, START_MS + 5000),
    ),
    min_size=1,
    max_size=5,
)


class LogAgainstList(RuleBasedStateMachine):
    """`records[n]` is the record at offset n; `start` and `flushed` are offsets.

    `produced` holds sequence, first offset and count of each batch of the one idempotent producer.
    """

    @initialize(
        segment_bytes=st.sampled_from([300, 800, 5000]),
        interval_bytes=st.sampled_from([0, 100, 4096]),
        index_bytes=st.sampled_from([24, 4096]),
        flush_messages=st.sampled_from([1, 7, 1 << 40]),
        max_open_files=st.sampled_from([1, 4, 1 << 40]),
    )
    def open_first(
        self, segment_bytes: int, interval_bytes: int, index_bytes: int, flush_messages: int, max_open_files: int
    ) -> None:
        self.fs = CrashFileSystem()
        self.max_open_files = max_open_files
        self.fs.mkdir(FOLDER)
        self.fs.fsync_dir("/")
        self.fs.fsync_dir("/data")
        self.clock = ManualClock(START_MS + 4000)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval_bytes,
            segment_index_bytes=index_bytes,
            flush_messages=flush_messages,
            retention_ms=3000,
            retention_bytes=3000,
            segment_ms=2500,
            file_delete_delay_ms=0,
        )
        self.records: list[NewRecord] = []
        self.start = self.flushed = 0
        self.batch_starts: list[int] = []
        self.produced: list[tuple[int, int, int]] = []
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.pool = PooledFileSystem(self.fs, self.max_open_files)
        self.log = Log(
            self.pool,
            self.clock,
            FOLDER,
            TopicPartition("t", 0),
            self.config,
            recovery_point=self.flushed,
            log_start_offset=self.start,
            clean=clean,
        )

    @rule(batches=st.lists(RECORDS, min_size=1, max_size=3), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def append(self, batches: list[list[NewRecord]], codec: Codec) -> None:
        data = b"".join(encode_batch(records, codec=codec, base_offset=77) for records in batches)
        if len(data) > self.config.segment_bytes:
            return
        info = self.log.append(data, leader_epoch=0)
        assert info.first_offset == len(self.records)
        for records in batches:
            self.batch_starts.append(len(self.records))
            self.records += records
        assert info.last_offset == len(self.records) - 1
        assert info.max_timestamp == max(record.timestamp_ms for records in batches for record in records)
        self.flushed = self.log.recovery_point

    @rule(appends=st.lists(RECORDS | st.none(), min_size=1, max_size=6))
    def append_together(self, appends: list[list[NewRecord] | None]) -> None:
        """None is an append that is refused."""
        sent = [b"no batch" if records is None else encode_batch(records) for records in appends]
        outcomes = self.log.append_all(sent, leader_epoch=0)
        for records, data, outcome in zip(appends, sent, outcomes, strict=True):
            if records is None or len(data) > self.config.segment_bytes:
                assert isinstance(outcome, RecordError)
                continue
            assert isinstance(outcome, LogAppendInfo)
            assert outcome.first_offset == len(self.records)
            self.batch_starts.append(len(self.records))
            self.records += records
            assert outcome.last_offset == len(self.records) - 1
        self.flushed = self.log.recovery_point

    @rule(count=st.integers(1, 3))
    def append_as_producer(self, count: int) -> None:
        sequence = sum(self.produced[-1][::2]) if self.produced else 0
        records = [NewRecord(b"produced", timestamp_ms=START_MS)] * count
        first = len(self.records)
        info = self.log.append(self.encode_produced(sequence, count), leader_epoch=0)
        assert (info.first_offset, info.last_offset) == (first, first + count - 1)
        self.produced.append((sequence, first, count))
        self.batch_starts.append(first)
        self.records += records
        self.flushed = self.log.recovery_point

    @rule()
    def repeat_the_last_batch(self) -> None:
        if self.produced and self.produced[-1][1] >= self.start:
            sequence, first, count = self.produced[-1]
            info = self.log.append(self.encode_produced(sequence, count), leader_epoch=0)
            assert (info.first_offset, info.last_offset) == (first, first + count - 1)

    @rule(step=st.sampled_from([1, 7]))
    def leave_sequences_out(self, step: int) -> None:
        if self.produced and self.produced[-1][1] >= self.start:
            with pytest.raises(OutOfOrderSequenceError):
                self.log.append(self.encode_produced(sum(self.produced[-1][::2]) + step, 1), leader_epoch=0)

    def encode_produced(self, sequence: int, count: int) -> bytes:
        records = [NewRecord(b"produced", timestamp_ms=START_MS)] * count
        return encode_batch(records, producer=BatchProducer(7, 0, sequence))

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = len(self.records)
        assert self.log.recovery_point == self.flushed

    @rule(choice=st.floats(0, 1))
    def raise_log_start_offset(self, choice: float) -> None:
        offset = self.start + int(choice * (len(self.records) - self.start))
        self.log.raise_log_start_offset(offset)
        self.start = offset

    @rule(milliseconds=st.integers(0, 2000))
    def retention(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        before = self.log.segment_count
        report = self.log.apply_retention()
        self.log.remove_deleted()
        assert self.start <= self.log.log_start_offset <= len(self.records)
        assert report.segments >= 1
        assert before - report.deleted_segments in (report.segments, report.segments - 1)
        self.start = self.log.log_start_offset

    @invariant()
    def no_more_files_are_open_than_allowed(self) -> None:
        """But for those that can't be opened again: snapshots that retention deleted before they were synced."""
        if hasattr(self, "log"):
            deleted = sum(file.is_kept for file in self.pool._files.values())
            assert self.fs.open_files <= self.max_open_files + deleted

    @rule()
    def reopen_clean(self) -> None:
        self.log.close()
        assert self.fs.open_files == 0
        self.flushed = len(self.records)
        self.open(clean=True)
        assert self.log.recovery.recovered_segments == 0

    @rule()
    def reopen_after_kill(self) -> None:
        self.fs = self.fs.after_kill()
        self.open(clean=False)

    @rule(seed=st.integers(0, 1 << 16))
    def reopen_after_power_cut(self, seed: int) -> None:
        self.fs = self.fs.after_cut(Random(seed))
        self.open(clean=False)
        end = self.log.log_end_offset
        assert self.flushed <= end or end == self.start
        assert end <= len(self.records)
        self.records = self.records[:end]
        self.batch_starts = [start for start in self.batch_starts if start < end]
        self.produced = [each for each in self.produced if each[1] < end]
        self.start = self.log.log_start_offset

    @rule(choice=st.floats(0, 1), max_bytes=st.integers(1, 3000), bound=st.floats(0, 1), at_least_one=st.booleans())
    def read(self, choice: float, max_bytes: int, bound: float, *, at_least_one: bool) -> None:
        ends = [*self.batch_starts, len(self.records)]
        up_to_offset = ends[int(bound * (len(ends) - 1))]
        offset = self.start + int(choice * (len(self.records) - self.start))
        data = self.log.read(offset, max_bytes, up_to_offset=up_to_offset, at_least_one=at_least_one)
        batches = [header for _, header in walk(data)]
        assert sum(header.size_bytes for header in batches) == len(data)
        if not data:
            assert offset >= up_to_offset or not at_least_one
            return
        assert len(data) <= max_bytes or (len(batches) == 1 and at_least_one)
        assert batches[0].base_offset <= offset <= batches[0].last_offset
        assert batches[-1].next_offset <= up_to_offset
        for record in decode_records(data):
            expected = self.records[record.offset]
            assert (record.key, record.value, record.timestamp_ms) == (
                expected.key,
                expected.value,
                expected.timestamp_ms,
            )

    @rule(timestamp_ms=st.integers(START_MS - 10, START_MS + 5010))
    def find_timestamp(self, timestamp_ms: int) -> None:
        found = self.log.offset_for_timestamp(timestamp_ms)
        expected = (
            (record.timestamp_ms, offset)
            for offset, record in enumerate(self.records)
            if offset >= self.start and record.timestamp_ms >= timestamp_ms
        )
        assert found == next(expected, None)

    @invariant()
    def the_whole_log_is_the_list(self) -> None:
        assert self.log.log_end_offset == len(self.records)
        assert self.log.log_start_offset == self.start
        offset = self.start
        while data := self.log.read(offset, 500, up_to_offset=len(self.records)):
            for record in decode_records(data):
                assert record.value == self.records[record.offset].value
                assert record.offset <= offset
                offset = max(offset, record.offset + 1)
        assert offset == len(self.records)
        assert self.log.verify().findings == ()
        for outside in (self.start - 1, len(self.records) + 1):
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(outside, 1, up_to_offset=len(self.records))


@pytest.mark.soak(rounds=1, minutes=3)
def test_a_log_is_a_list(rounds, record_property):
    examples, count = settings(max_examples=60, stateful_step_count=30, deadline=None), 0
    for _ in rounds:
        run_state_machine_as_test(LogAgainstList, settings=examples)
        count += examples.max_examples
    record_property("examples", count)
