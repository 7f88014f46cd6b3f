"""A compacted log is the list of all that was appended, less what a later record of the same key stands for."""

import uuid
from contextlib import suppress
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millrace.descriptor_pool import PooledFileSystem
from millrace.errors import RecordTooLargeError
from millrace.records.batch import walk
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, LogCleaner, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError

T = TopicPartition("t", 0)
NOW_MS = 1_000_000
SLOT_BYTES = 24

KEYED = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=40),
    key=st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e", b"f"]),
    timestamp_ms=st.integers(NOW_MS - 500, NOW_MS + 5000),
)
KEYLESS = st.builds(NewRecord, value=st.binary(max_size=40), timestamp_ms=st.just(NOW_MS))


class CompactionAgainstModel(RuleBasedStateMachine):
    """`appended[n]` is the record at offset n; `start` and `flushed` are offsets."""

    @initialize(
        segment_bytes=st.sampled_from([250, 600, 3000]),
        index_bytes=st.sampled_from([24, 4096]),
        interval_bytes=st.sampled_from([0, 100, 4096]),
        slots=st.sampled_from([5, 7, 1000]),
        max_open_files=st.sampled_from([2, 1 << 40]),
    )
    def open_first(
        self, segment_bytes: int, index_bytes: int, interval_bytes: int, slots: int, max_open_files: int
    ) -> None:
        self.fs = CrashFileSystem()
        self.max_open_files = max_open_files
        self.clock = ManualClock(NOW_MS)
        self.properties = {
            "segment.bytes": str(segment_bytes),
            "segment.index.bytes": str(index_bytes),
            "index.interval.bytes": str(interval_bytes),
            "file.delete.delay.ms": "0",
            "delete.retention.ms": "1000",
        }
        self.config = CleanerConfig(dedupe_buffer_bytes=slots * SLOT_BYTES)
        self.appended: list[NewRecord] = []
        self.start = self.flushed = 0
        self.open()

    def open(self) -> None:
        pool = PooledFileSystem(self.fs, self.max_open_files)
        self.manager = LogManager(pool, self.clock, ["/data"], {}, "c" * 22, 1)
        self.manager.start()
        self.cleaner = LogCleaner(pool, self.clock, self.manager, self.config)
        self.log = self.configured("compact")

    def configured(self, policy: str) -> object:
        return self.manager.create(T, uuid.UUID(int=1), self.properties | {"cleanup.policy": policy})

    @rule(
        batches=st.lists(st.lists(KEYED, min_size=1, max_size=5), min_size=1, max_size=4),
        codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]),
    )
    def append(self, batches: list[list[NewRecord]], codec: Codec) -> None:
        for records in batches:
            with suppress(RecordTooLargeError):
                self.log.append(encode_batch(records, codec=codec), leader_epoch=0)
                self.appended += records

    @rule(records=st.lists(KEYED | KEYLESS, min_size=1, max_size=3))
    def append_before_the_topic_was_compacted(self, records: list[NewRecord]) -> None:
        self.configured("delete")
        self.append([records], Codec.NONE)
        self.configured("compact")

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    @rule(milliseconds=st.integers(0, 1500))
    def let_time_pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(choice=st.floats(0, 1))
    def raise_log_start_offset(self, choice: float) -> None:
        self.start += int(choice * (len(self.appended) - self.start))
        self.log.raise_log_start_offset(self.start)

    @rule()
    def retention(self) -> None:
        list(self.manager.retention())
        self.manager.remove_deleted()
        assert self.log.log_start_offset == self.start

    @rule(force=st.booleans())
    def compact(self, *, force: bool) -> None:
        reports = self.cleaner.run(force=force)
        self.manager.release_replaced()
        self.flushed = self.log.recovery_point
        for report in reports:
            assert report.error == ""
            self.check_compacted(report.first_dirty_offset)

    def check_compacted(self, first_dirty_offset: int) -> None:
        """Below there each key is there once at most, and nothing without a key."""
        clean = [record for record in self.survivors() if record.offset < first_dirty_offset]
        last = {record.key: offset for offset, record in enumerate(self.appended[:first_dirty_offset])}
        assert all(record.key is not None and last[record.key] == record.offset for record in clean)

    @rule(operation=st.integers(1, 60), seed=st.none() | st.integers(0, 1 << 16))
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

    def survivors(self) -> list[Record]:
        found: list[Record] = []
        offset = self.log.log_start_offset
        while data := self.log.read(offset, 300, up_to_offset=self.log.log_end_offset):
            assert next(header for _, header in walk(data)).last_offset >= offset
            found += decode_records(data)
            offset = [header for _, header in walk(data)][-1].next_offset
        assert offset == self.log.log_end_offset
        return [record for record in found if record.offset >= self.start]

    @invariant()
    def every_keys_last_value_is_there_and_nothing_is_changed_or_moved(self) -> None:
        survivors = self.survivors()
        offsets = [record.offset for record in survivors]
        assert offsets == sorted(set(offsets))
        for record in survivors:
            sent = self.appended[record.offset]
            assert (record.key, record.value, record.timestamp_ms) == (sent.key, sent.value, sent.timestamp_ms)
        last = {record.key: offset for offset, record in enumerate(self.appended)}
        wanted = {offset for key, offset in last.items() if key is not None and self.appended[offset].value is not None}
        assert {offset for offset in wanted if offset >= self.start} <= set(offsets)

    @rule(choice=st.floats(0, 1), max_bytes=st.integers(1, 1000))
    def read(self, choice: float, max_bytes: int) -> None:
        wanted = self.start + int(choice * (len(self.appended) - self.start))
        expected = [record for record in self.survivors() if record.offset >= wanted]
        found: list[Record] = []
        while not found and (data := self.log.read(wanted, max_bytes, up_to_offset=self.log.log_end_offset)):
            found = [record for record in decode_records(data) if record.offset >= wanted]
            wanted = [header for _, header in walk(data)][-1].next_offset
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    @rule(timestamp_ms=st.integers(NOW_MS - 600, NOW_MS + 5100))
    def find_timestamp(self, timestamp_ms: int) -> None:
        survivors = self.survivors()
        expected = ((record.timestamp_ms, record.offset) for record in survivors if record.timestamp_ms >= timestamp_ms)
        assert self.log.offset_for_timestamp(timestamp_ms) == next(expected, None)
        newest = max(survivors, key=lambda record: record.timestamp_ms, default=None)
        if newest is not None:
            assert self.log.offset_of_max_timestamp() == (newest.timestamp_ms, newest.offset)

    @invariant()
    def the_checker_finds_nothing(self) -> None:
        assert self.log.verify().findings == ()


@pytest.mark.soak(rounds=1, minutes=1.5)
def test_compaction_agrees_with_its_model(rounds, record_property):
    examples, count = settings(max_examples=60, stateful_step_count=30, deadline=None), 0
    for _ in rounds:
        run_state_machine_as_test(CompactionAgainstModel, settings=examples)
        count += examples.max_examples
    record_property("examples", count)
