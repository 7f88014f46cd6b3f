"""A log, whatever is done to it, is a list of records with a first offset."""

from collections.abc import Sequence
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
    """`records[n]` is the record at offset n, None where it was left out; `start` and `flushed` are offsets.

    `batches` holds first offset and end of each batch, `epochs` epoch and first offset of each leader, and `produced`
    sequence, first offset and count of each batch of the one idempotent producer.
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
        self.records: list[NewRecord | None] = []
        self.start = self.flushed = self.epoch = 0
        self.batches: list[tuple[int, int]] = []
        self.leaders: list[tuple[int, int]] = []
        self.produced: list[tuple[int, int, int]] = []
        self.first_base = 0
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

    def add(self, records: list[NewRecord]) -> None:
        """Appends a batch to the list, at its end."""
        first = len(self.records)
        if not self.leaders or self.leaders[-1][0] < self.epoch:
            self.leaders = [*(each for each in self.leaders if each[1] < first), (self.epoch, first)]
        self.records += records
        self.batches.append((first, first + len(records)))

    def cut(self, end: int) -> None:
        """Cuts the list off at the end of a batch."""
        self.records = self.records[:end]
        self.batches = [each for each in self.batches if each[1] <= end]
        self.produced = [each for each in self.produced if each[1] < end]
        self.leaders = [each for each in self.leaders if each[1] < end]

    def of_what_can_be_read(self, leaders: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Leaders from the first batch on; a log that was opened again knows no earlier offset of the first one."""
        first = max(self.start, next(base for base, end in self.batches if end > self.start))
        below = [epoch for epoch, offset in leaders if offset <= first]
        return [*((epoch, first) for epoch in below[-1:]), *(each for each in leaders if each[1] > first)]

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule(batches=st.lists(RECORDS, min_size=1, max_size=3), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def append(self, batches: list[list[NewRecord]], codec: Codec) -> None:
        data = b"".join(encode_batch(records, codec=codec, base_offset=77) for records in batches)
        if len(data) > self.config.segment_bytes:
            return
        info = self.log.append(data, leader_epoch=self.epoch)
        assert info.first_offset == len(self.records)
        for records in batches:
            self.add(records)
        assert info.last_offset == len(self.records) - 1
        assert info.max_timestamp == max(record.timestamp_ms for records in batches for record in records)
        self.flushed = self.log.recovery_point

    @rule(appends=st.lists(RECORDS | st.none(), min_size=1, max_size=6))
    def append_together(self, appends: list[list[NewRecord] | None]) -> None:
        """None is an append that is refused."""
        sent = [b"no batch" if records is None else encode_batch(records) for records in appends]
        outcomes = self.log.append_all(sent, leader_epoch=self.epoch)
        for records, data, outcome in zip(appends, sent, outcomes, strict=True):
            if records is None or len(data) > self.config.segment_bytes:
                assert isinstance(outcome, RecordError)
                continue
            assert isinstance(outcome, LogAppendInfo)
            assert outcome.first_offset == len(self.records)
            self.add(records)
            assert outcome.last_offset == len(self.records) - 1
        self.flushed = self.log.recovery_point

    @rule(count=st.integers(1, 3))
    def append_as_producer(self, count: int) -> None:
        sequence = sum(self.produced[-1][::2]) if self.produced else 0
        records = [NewRecord(b"produced", timestamp_ms=START_MS)] * count
        first = len(self.records)
        info = self.log.append(self.encode_produced(sequence, count), leader_epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (first, first + count - 1)
        self.produced.append((sequence, first, count))
        self.add(records)
        self.flushed = self.log.recovery_point

    @rule(batches=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 9]), RECORDS), min_size=1, max_size=4))
    def append_as_follower(self, batches: list[tuple[int, list[NewRecord]]]) -> None:
        """Appends what a leader has, of which compaction left offsets out before some batches."""
        sent = b""
        for gap, records in batches:
            self.records += [None] * gap
            data = bytearray(encode_batch(records, base_offset=len(self.records)))
            data[12:16] = self.epoch.to_bytes(4, "big")
            sent += data
            self.add(records)
        info = self.log.append_as_follower(sent, leader_epoch=self.epoch)
        assert info is not None
        assert info.last_offset == len(self.records) - 1
        self.flushed = self.log.recovery_point

    @rule(choice=st.floats(0, 1), from_start=st.booleans())
    def truncate(self, choice: float, *, from_start: bool) -> None:
        """Cuts the end off, more often a little of it; the recovery point that the next start goes by is lowered."""
        offset = int(choice * len(self.records)) if from_start else max(len(self.records) - int(choice * 20), 0)
        self.flushed = min(self.flushed, offset)
        is_cut = offset < len(self.records)
        assert self.log.truncate_to(offset) is is_cut
        if not is_cut:
            return
        end = max((end for _, end in self.batches if end <= offset), default=self.first_base)
        if offset < self.first_base or end < self.start:
            self.begin_at(offset)
        else:
            self.cut(end)
            self.flushed = min(self.flushed, end)
            self.forget_epochs_of_nothing()

    @rule(choice=st.floats(0, 1))
    def truncate_fully(self, choice: float) -> None:
        offset = int(choice * (len(self.records) + 10))
        self.flushed = min(self.flushed, offset)
        self.log.truncate_fully_and_start_at(offset)
        self.begin_at(offset)

    def begin_at(self, offset: int) -> None:
        self.records = [None] * offset
        self.batches, self.produced, self.leaders = [], [], []
        self.start = self.first_base = offset

    @rule()
    def repeat_the_last_batch(self) -> None:
        if self.produced and self.produced[-1][1] >= self.start:
            sequence, first, count = self.produced[-1]
            info = self.log.append(self.encode_produced(sequence, count), leader_epoch=self.epoch)
            assert (info.first_offset, info.last_offset) == (first, first + count - 1)

    @rule(step=st.sampled_from([1, 7]))
    def leave_sequences_out(self, step: int) -> None:
        if self.produced and self.produced[-1][1] >= self.start:
            with pytest.raises(OutOfOrderSequenceError):
                self.log.append(self.encode_produced(sum(self.produced[-1][::2]) + step, 1), leader_epoch=self.epoch)

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
        before = len(self.log.segments)
        report = self.log.apply_retention()
        self.log.remove_deleted()
        assert self.start <= self.log.log_start_offset <= len(self.records)
        assert report.segments >= 1
        assert before - report.deleted_segments in (report.segments, report.segments - 1)
        self.start = self.log.log_start_offset
        self.first_base = self.log.segments[0].base_offset
        self.batches = [each for each in self.batches if each[0] >= self.first_base]

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
        self.forget_epochs_of_nothing()

    @rule(seed=st.integers(0, 1 << 16))
    def reopen_after_power_cut(self, seed: int) -> None:
        self.fs = self.fs.after_cut(Random(seed))
        self.open(clean=False)
        end = self.log.log_end_offset
        assert self.flushed <= end or end == self.start
        assert end <= len(self.records)
        self.cut(end)
        self.first_base = self.log.segments[0].base_offset
        self.start = self.log.log_start_offset
        self.forget_epochs_of_nothing()

    def forget_epochs_of_nothing(self) -> None:
        """Takes what a log without records still knows: no batch has the epochs that the file may lack."""
        if self.start == len(self.records):
            known = {epoch for epoch, _ in self.log.leader_epochs.entries}
            assert known <= {epoch for epoch, _ in self.leaders}
            self.leaders = [each for each in self.leaders if each[0] in known]

    @rule(choice=st.floats(0, 1), max_bytes=st.integers(1, 3000), bound=st.floats(0, 1), at_least_one=st.booleans())
    def read(self, choice: float, max_bytes: int, bound: float, *, at_least_one: bool) -> None:
        ends = [*(first for first, _ in self.batches), len(self.records)]
        up_to_offset = ends[int(bound * (len(ends) - 1))]
        offset = self.start + int(choice * (len(self.records) - self.start))
        data = self.log.read(offset, max_bytes, up_to_offset=up_to_offset, at_least_one=at_least_one)
        batches = [header for _, header in walk(data)]
        assert sum(header.size_bytes for header in batches) == len(data)
        if not data:
            assert not any(self.records[offset:up_to_offset]) or not at_least_one
            return
        assert len(data) <= max_bytes or (len(batches) == 1 and at_least_one)
        assert offset <= batches[0].last_offset
        assert not any(self.records[offset : batches[0].base_offset])
        assert batches[-1].next_offset <= up_to_offset
        for record in decode_records(data):
            expected = self.records[record.offset]
            assert expected is not None
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
            if record is not None and offset >= self.start and record.timestamp_ms >= timestamp_ms
        )
        assert found == next(expected, None)

    @invariant()
    def the_whole_log_is_the_list(self) -> None:
        assert self.log.log_end_offset == len(self.records)
        assert self.log.log_start_offset == self.start
        if self.start < len(self.records):
            entries = self.log.leader_epochs.entries
            assert self.of_what_can_be_read(entries) == self.of_what_can_be_read(self.leaders)
        offset = self.start
        while data := self.log.read(offset, 500, up_to_offset=len(self.records)):
            for record in decode_records(data):
                expected = self.records[record.offset]
                assert expected is not None
                assert record.value == expected.value
                assert not any(self.records[offset : record.offset])
                offset = max(offset, record.offset + 1)
        assert not any(self.records[offset:])
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
