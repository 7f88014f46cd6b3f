"""The power goes at every operation of a follower that appends and truncates: the log is a prefix of its leader's.

A truncation that has come back to its caller stays: nothing of what was cut is ever there again, and what was flushed
below it is. Before it comes back, the log is a prefix of what it was.

The same holds in a mirrored topic, in whose log the mirroring ends now and then: at each of these batches all producers
before are forgotten, and where one is cut off, they are known again.
"""

from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from millrace.records.batch import NO_PRODUCER_ID, TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker, decode_marker, encode_marker, encode_mirror_end
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.producers.producer_state import ProducerEntry, with_batch, with_marker
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
ABORT = EndTransactionMarker(ControlType.ABORT, coordinator_epoch=0)
Batches = dict[int, bytes]
Batch = Callable[[int, int], bytes]


def open_log(fs: CrashFileSystem, *, recovery_point: int = 0, start: int = 0) -> Log:
    partition = TopicPartition("t", 0)
    return Log(
        fs, ManualClock(NOW_MS), FOLDER, partition, CONFIG, recovery_point=recovery_point, log_start_offset=start
    )


def batch(offset: int, epoch: int) -> bytes:
    """Returns in turn a plain batch, one of an idempotent producer, one of a transaction, and the abort of that."""
    record = [NewRecord(b"epoch %d" % epoch, timestamp_ms=NOW_MS + offset)]
    match offset % 4:
        case 0:
            data = encode_batch(record, base_offset=offset)
        case 1:
            data = encode_batch(record, base_offset=offset, producer=BatchProducer(7, 0, offset // 4))
        case 2:
            producer = BatchProducer(8, 0, offset // 4)
            data = encode_batch(record, base_offset=offset, producer=producer, flags=TRANSACTIONAL_FLAG)
        case _:
            data = encode_marker(ABORT, producer_id=8, producer_epoch=0, timestamp_ms=NOW_MS)
            data = offset.to_bytes(8, "big") + data[8:]
    return data[:12] + epoch.to_bytes(4, "big") + data[16:]


def mirrored_batch(offset: int, epoch: int) -> bytes:
    """Returns the same, but the end of mirroring in the place of every other plain batch."""
    if offset % 8 != 4:
        return batch(offset, epoch)
    data = encode_mirror_end(UUID(int=1), timestamp_ms=NOW_MS)
    return offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


class Follower:
    """Appends and truncates. `allowed` lists what the log may hold at most after a crash, state by state."""

    def __init__(self, fs: CrashFileSystem, new_batch: Batch = batch) -> None:
        self.fs = fs
        self.batch = new_batch
        self.batches: Batches = {}
        self.allowed: list[Batches] = [{}]
        self.flushed = self.end = self.start = self.epoch = 0
        self.starts = {0}
        self.is_cutting = False

    def run(self) -> None:
        self.log = open_log(self.fs)
        self.fetch(20)
        self.flush()
        self.truncate(self.log.segments[-1].base_offset)  # no leader epoch begins above it
        self.fetch(4)
        self.truncate(self.end - 2)
        self.truncate(13)  # inside a segment, below what is flushed
        self.fetch(12, gap=3)
        self.flush()
        self.fetch(4)
        self.truncate(self.log.segments[2].base_offset)
        self.fetch(3)
        self.truncate(2)
        self.fetch(9, gap=1)
        self.begin_at(self.end + 20)
        self.fetch(6)
        self.flush()
        self.begin_at(30)
        self.fetch(9)
        self.truncate(35)
        self.log.close()
        self.flushed = self.end

    def fetch(self, count: int, *, gap: int = 0) -> None:
        """Appends batches in an epoch of their own, in two answers of the leader."""
        self.epoch += 1
        first = self.end + gap
        sent = {offset: self.batch(offset, self.epoch) for offset in range(first, first + count)}
        self.allowed = [self.batches | sent]
        for half in (range(first, first + count // 2), range(first + count // 2, first + count)):
            self.log.append_as_follower(b"".join(sent[offset] for offset in half), leader_epoch=self.epoch)
            self.batches |= {offset: sent[offset] for offset in half}
            self.end = self.log.log_end_offset

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    def truncate(self, offset: int) -> None:
        self.flushed = min(self.flushed, offset)
        self.is_cutting = True
        self.log.truncate_to(offset)
        self.is_cutting = False
        self.batches = {key: data for key, data in self.batches.items() if key < offset}
        self.allowed = [self.batches]
        self.end = self.log.log_end_offset

    def begin_at(self, offset: int) -> None:
        """Empties the log, which begins again at the offset; the checkpoint of its start is lowered before."""
        self.flushed = min(self.flushed, offset)
        self.start = min(self.start, offset)
        self.allowed = [self.batches, {}]
        self.is_cutting = True
        self.log.truncate_fully_and_start_at(offset)
        self.is_cutting = False
        self.batches = {}
        self.allowed = [{}]
        self.start = self.end = offset


def expected_producers(batches: Batches) -> tuple[dict[int, ProducerEntry], list[tuple[int, int, int]]]:
    entries: dict[int, ProducerEntry] = {}
    aborted: list[tuple[int, int, int]] = []
    for data in batches.values():
        ((_, header),) = walk(data)
        if header.producer_id == NO_PRODUCER_ID:
            if header.is_control:
                entries.clear()
            continue
        entry = entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        if header.is_control:
            marker = decode_marker(header, memoryview(data))
            assert marker is not None
            entry, completed = with_marker(entry, header, marker, header.base_offset)
            if completed is not None:
                aborted.append(completed[:3])
        else:
            entry = with_batch(entry, header, header.base_offset)
        entries[header.producer_id] = entry
    return entries, aborted


def check(fs: CrashFileSystem, follower: Follower, *, is_killed: bool = False) -> None:
    log = open_log(fs, recovery_point=follower.flushed, start=follower.start)
    data = b"".join(segment.read_at(0, segment.size_bytes) for segment in log.segments)
    left = {header.base_offset: data[at : at + header.size_bytes] for at, header in walk(data)}
    assert sum(map(len, left.values())) == len(data)
    assert any(list(left.items()) == list(allowed.items())[: len(left)] for allowed in follower.allowed)
    must_stay = follower.end if is_killed else follower.flushed
    if not follower.is_cutting:
        assert left.keys() >= {offset for offset in follower.batches if offset < must_stay}
    elif len(follower.allowed) == 1:
        assert left.keys() >= {offset for offset in follower.batches if offset < follower.flushed}
    assert log.verify().findings == ()
    check_producers(log, left)
    epochs = {header.partition_leader_epoch: at for at, header in reversed(list(walk(data)))}
    firsts = {epoch: walk_at(data, at) for epoch, at in epochs.items()}
    assert [entry for entry in log.leader_epochs.entries if entry[1] < log.log_end_offset] == sorted(firsts.items())
    log.truncate_to(max(log.log_end_offset - 1, 0))
    check_producers(log, {offset: data for offset, data in left.items() if offset < log.log_end_offset})
    log.append_as_follower(batch(log.log_end_offset, follower.epoch + 1), leader_epoch=follower.epoch + 1)
    log.close()
    assert fs.open_files == 0


def check_producers(log: Log, batches: Batches) -> None:
    entries, aborted = expected_producers(batches)
    found = log.producers.entries
    assert found.keys() == entries.keys()
    for key, entry in entries.items():
        assert (found[key].last_sequence, found[key].last_offset) == (entry.last_sequence, entry.last_offset)
        assert found[key].transaction_first_offset == entry.transaction_first_offset
    assert [one[:3] for one in log.aborted_transactions(0, 1 << 40)] == aborted


def walk_at(data: bytes, position: int) -> int:
    return next(walk(data, position))[1].base_offset


@pytest.mark.parametrize("new_batch", [batch, mirrored_batch])
@pytest.mark.soak(rounds=2, minutes=1.5)
def test_a_truncated_log_survives_a_power_cut_at_any_operation(rounds, record_property, new_batch: Batch) -> None:
    for seed in rounds:
        fs = fs_with_folder(FOLDER)
        follower = Follower(fs, new_batch)
        for cut_at in fs.each_change(follower.run):
            check(fs.after_cut(Random(seed * 10_000 + cut_at) if seed else None), follower)
    record_property("seeds", seed + 1)


@pytest.mark.parametrize("new_batch", [batch, mirrored_batch])
def test_a_killed_follower_loses_nothing_and_nothing_that_was_cut_comes_back(new_batch: Batch) -> None:
    fs = fs_with_folder(FOLDER)
    follower = Follower(fs, new_batch)
    for _ in fs.each_change(follower.run):
        check(fs.after_kill(), follower, is_killed=True)


def test_a_log_that_begins_afresh_begins_there_after_a_power_cut_at_any_operation() -> None:
    """The name of its first segment is synced before there is another, which would be the first otherwise."""
    fs = fs_with_folder(FOLDER)

    def run() -> None:
        log = open_log(fs)
        log.append_as_follower(batch(0, 1), leader_epoch=1)
        log.truncate_fully_and_start_at(20)
        log.truncate_fully_and_start_at(30)  # there is no leader epoch left to write, which would sync the name, too
        for offset in range(30, 45):
            log.append_as_follower(batch(offset, 2), leader_epoch=2)

    for cut_at in fs.each_change(run):
        for seed in range(8):
            assert open_log(fs.after_cut(Random(seed * 1000 + cut_at))).log_start_offset in {0, 20, 30}
