"""A log that is moved between data folders, whatever else is done to it, is a list of records with a first offset."""

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millrace.descriptor_pool import PooledFileSystem
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogCopy, LogManager, LogSlice, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.log_moves import finish_move

KEY, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=1)
DIRS = ["/one", "/two", "/three"]
PROPERTIES = {
    "log.segment.bytes": "400",
    "log.flush.interval.messages": "1",
    "log.segment.delete.delay.ms": "0",
    "log.retention.bytes": "800",
}
UNLIMITED = 1e300


class MovedLogAgainstList(RuleBasedStateMachine):
    """`values[n]` is the value at offset n; an offset below `start`, or one of an older equal key, may be gone."""

    @initialize(is_compacted=st.booleans(), max_open_files=st.sampled_from([2, 1 << 40]))
    def begin(self, *, is_compacted: bool, max_open_files: int) -> None:
        self.fs = CrashFileSystem()
        self.is_compacted = is_compacted
        self.max_open_files = max_open_files
        self.values: list[bytes] = []
        self.start = 0
        self.open()

    def open(self) -> None:
        fs, self.clock = PooledFileSystem(self.fs, self.max_open_files), ManualClock()
        self.logs = LogManager(fs, self.clock, DIRS, PROPERTIES, "cluster", 1)
        self.logs.start()
        policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"} if self.is_compacted else {}
        self.logs.create(KEY, TOPIC_ID, policy)
        self.cleaner = LogCleaner(fs, self.clock, self.logs, CleanerConfig())

    @property
    def log(self) -> Log:
        return self.logs.logs()[KEY]

    def copy_to(self, place: int) -> LogCopy:
        """The copy that is being made, or else a new one."""
        others = [path for path in DIRS if not self.log.directory.startswith(f"{path}/")]
        return self.logs.moves.copies().get(KEY) or self.logs.moves.begin(KEY, others[place])

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        for _ in range(count):
            offset = len(self.values)
            self.log.append(self.batch(offset), leader_epoch=offset // 4)
            self.values.append(b"%d" % offset)

    @rule(back=st.integers(1, 5))
    def repeat_one_of_the_last_batches(self, back: int) -> None:
        entry = self.log.producers.entries.get(7)
        if entry is not None and len(entry.batches) >= back:
            offset = len(self.values) - back
            assert self.log.append(self.batch(offset), leader_epoch=0).first_offset == offset

    def batch(self, offset: int) -> bytes:
        record = NewRecord(b"%d" % offset, key=b"%d" % (offset % 3), timestamp_ms=self.clock.now_ms())
        return encode_batch([record], producer=BatchProducer(7, 0, offset))

    @precondition(lambda self: not self.is_compacted)
    @rule(choice=st.floats(0, 1))
    def raise_log_start_offset(self, choice: float) -> None:
        self.log.raise_log_start_offset(self.start + int(choice * (len(self.values) - self.start)))
        self.logs.checkpoint()
        self.start = self.log.log_start_offset

    @rule()
    def retention(self) -> None:
        list(self.logs.retention())
        self.logs.remove_deleted()
        self.logs.checkpoint()
        self.start = self.log.log_start_offset

    @rule()
    def compact(self) -> None:
        self.cleaner.run(force=True)

    @rule(place=st.integers(0, 1))
    def catch_up(self, place: int) -> None:
        copy = self.copy_to(place)
        copy.catch_up(self.log, UNLIMITED)
        assert copy.rest_bytes(self.log.segments) == 0
        assert copy.end_offset == len(self.values)
        assert copy.size_bytes == self.log.size_bytes

    @rule(place=st.integers(0, 1))
    def finish_move(self, place: int) -> None:
        old, target = self.log, self.copy_to(place).parent
        read = old.read_or_find(self.start, 1 << 20, up_to_offset=len(self.values), read_at_once_bytes=0)
        before = read.read() if isinstance(read, LogSlice) else None
        producers = old.producers.entries
        moved = finish_move(self.logs, KEY)
        self.cleaner.follow(old, moved)
        assert moved is self.log
        assert moved.directory == f"{target}/t-0"
        assert moved.producers.entries == producers
        self.logs.remove_deleted()
        assert not isinstance(read, LogSlice) or read.read() == before

    @precondition(lambda self: self.logs.moves.copies())
    @rule()
    def drop_move(self) -> None:
        self.logs.moves.drop(KEY)

    @rule()
    def restart(self) -> None:
        self.logs.close()
        assert self.fs.open_files == 0
        self.open()
        assert self.log.recovery.recovered_segments == 0

    @rule()
    def kill(self) -> None:
        self.fs = self.fs.after_kill()
        self.open()

    @invariant()
    def the_log_is_the_list(self) -> None:
        log, found, offset = self.log, dict[int, bytes | None](), self.start
        assert (log.log_start_offset, log.log_end_offset) == (self.start, len(self.values))
        while data := log.read(offset, 500, up_to_offset=len(self.values)):
            records = [record for record in decode_records(data) if record.offset >= self.start]
            found.update((record.offset, record.value) for record in records)
            offset = records[-1].offset + 1 if records else offset + 1
        kept = {n: b"%d" % n for n in range(self.start, len(self.values))}
        if self.is_compacted:
            newest = {n: value for n, value in kept.items() if n >= len(self.values) - 3}
            assert newest.items() <= found.items() <= kept.items()
        else:
            assert found == kept
        assert log.verify().findings == ()


@pytest.mark.soak(rounds=1, minutes=2)
def test_a_moved_log_is_a_list(rounds, record_property):
    examples, count = settings(max_examples=80, stateful_step_count=30, deadline=None), 0
    for _ in rounds:
        run_state_machine_as_test(MovedLogAgainstList, settings=examples)
        count += examples.max_examples
    record_property("examples", count)
