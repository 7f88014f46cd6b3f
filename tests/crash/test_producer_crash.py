"""The power is cut at every operation: producers and aborted transactions are what the surviving log says."""

from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.batch import NO_PRODUCER_ID, TRANSACTIONAL_FLAG, walk
from millrace.records.control import ControlType, EndTransactionMarker, decode_marker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.producers.producer_state import ProducerEntry, with_batch, with_marker
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, PowerCutError, fs_with_folder
from millrace_support.markers import append_marker

FOLDER = "/data/t-0"
CONFIG = LogConfig(segment_bytes=500, retention_ms=-1)
ABORT, COMMIT = (EndTransactionMarker(kind, coordinator_epoch=0) for kind in (ControlType.ABORT, ControlType.COMMIT))
IDEMPOTENT, FIRST, SECOND = 7, 8, 9


def open_log(fs: CrashFileSystem, recovery_point: int) -> Log:
    return Log(fs, ManualClock(), FOLDER, TopicPartition("t", 0), CONFIG, recovery_point=recovery_point)


def batch(log: Log, producer_id: int, flags: int = 0) -> bytes:
    entry = log.producers.entries.get(producer_id) or ProducerEntry(producer_id)
    producer = BatchProducer(producer_id, 0, entry.last_sequence + 1)
    return encode_batch([NewRecord(b"v", timestamp_ms=1_700_000_000_000)], producer=producer, flags=flags)


class Workload:
    """Plain and transactional producers take turns; `flushed` is what must survive."""

    def __init__(self, fs: CrashFileSystem, recovery_point: int = 0) -> None:
        self.fs = fs
        self.flushed = recovery_point

    def run(self, idempotent: int = IDEMPOTENT) -> None:
        log = open_log(self.fs, self.flushed)
        for step in range(12):
            log.append(batch(log, idempotent), leader_epoch=0)
            for producer_id, marker in ((FIRST, ABORT), (SECOND, ABORT if step % 4 == 1 else COMMIT)):
                log.append(batch(log, producer_id, TRANSACTIONAL_FLAG), leader_epoch=0)
                if step % 2:
                    append_marker(log, marker, producer_id=producer_id, producer_epoch=0, leader_epoch=0)
            if step % 3 == 2:
                log.flush()
                self.flushed = log.recovery_point
        log.close()
        self.flushed = log.log_end_offset


def in_the_log(log: Log) -> tuple[dict[int, ProducerEntry], list[AbortedTransaction]]:
    """Producers and aborted transactions as the batches alone tell."""
    entries: dict[int, ProducerEntry] = {}
    aborted: list[AbortedTransaction] = []
    offset = 0
    while data := log.read(offset, 1000, up_to_offset=log.log_end_offset):
        for position, header in walk(data):
            offset = header.next_offset
            if header.producer_id == NO_PRODUCER_ID:
                continue
            entry = entries.get(header.producer_id, ProducerEntry(header.producer_id))
            if not header.is_control:
                entries[header.producer_id] = with_batch(entry, header, header.base_offset)
                continue
            marker = decode_marker(header, memoryview(data)[position : position + header.size_bytes])
            assert marker is not None
            entries[header.producer_id], completed = with_marker(entry, header, marker, header.base_offset)
            if completed is not None and completed.is_aborted:
                still_open = [each.transaction_first_offset for each in entries.values() if each.has_open_transaction]
                stable = min(still_open, default=header.base_offset + 1)
                aborted.append(
                    AbortedTransaction(entry.producer_id, completed.first_offset, header.base_offset, stable)
                )
    return entries, aborted


def check(log: Log, flushed: int) -> None:
    assert log.log_end_offset >= flushed
    entries, aborted = in_the_log(log)
    found = dict(log.producers.entries)
    assert {key: entry.batches[-1:] for key, entry in found.items()} == {
        key: entry.batches[-1:] for key, entry in entries.items()
    }
    assert {key: entry.transaction_first_offset for key, entry in found.items()} == {
        key: entry.transaction_first_offset for key, entry in entries.items()
    }
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    first_open = [entry.transaction_first_offset for entry in entries.values() if entry.has_open_transaction]
    assert log.last_stable_offset(log.log_end_offset) == min(first_open, default=log.log_end_offset)


def operations_of_workload() -> int:
    fs = fs_with_folder(FOLDER)
    Workload(fs).run()
    return fs.operations


OPERATIONS = operations_of_workload()


def cut(cut_at: int) -> tuple[CrashFileSystem, Workload]:
    fs = fs_with_folder(FOLDER)
    fs.cut_power_at(cut_at)
    workload = Workload(fs)
    with pytest.raises(PowerCutError):
        workload.run()
    return fs, workload


@pytest.mark.soak(rounds=4, minutes=1.5)
def test_the_state_is_that_of_the_surviving_log(rounds, record_property) -> None:
    for seed in rounds:
        fs = fs_with_folder(FOLDER)
        workload = Workload(fs)
        for cut_at in fs.each_change(workload.run):
            chance = Random(seed * 1000 + cut_at) if seed else None
            after = fs.after_cut(chance)
            log = open_log(after, workload.flushed)
            check(log, workload.flushed)
            log.close()
            assert after.open_files == 0
    record_property("seeds", seed + 1)


def test_a_killed_process_loses_no_state() -> None:
    fs = fs_with_folder(FOLDER)
    workload = Workload(fs)
    for _ in fs.each_change(workload.run):
        check(open_log(fs.after_kill(), workload.flushed), workload.flushed)


def test_snapshots_of_lost_batches_never_speak_for_those_that_took_their_offsets() -> None:
    for seed in range(150):
        chance = Random(seed)
        fs, workload = cut(chance.randint(fs_with_folder(FOLDER).operations + 1, OPERATIONS))
        fs = fs.after_cut(chance)
        fs.cut_power_at(chance.randint(1, OPERATIONS // 2))
        other = Workload(fs, workload.flushed)
        try:
            other.run(idempotent=77)
        except PowerCutError:
            fs = fs.after_cut(chance)
        check(open_log(fs, other.flushed), other.flushed)


@pytest.mark.parametrize("operation", ["pwritev", "create", "truncate"])
def test_a_failed_append_leaves_the_state_as_it_was(operation: str) -> None:
    for after in range(8):
        fs = fs_with_folder(FOLDER)
        log = open_log(fs, 0)
        log.append(batch(log, IDEMPOTENT), leader_epoch=-1)
        fs.fail(operation, after=after)
        while log.log_end_offset < 14:
            try:
                log.append(batch(log, IDEMPOTENT), leader_epoch=-1)
                log.append(batch(log, FIRST, TRANSACTIONAL_FLAG), leader_epoch=-1)
                append_marker(log, ABORT, producer_id=FIRST, producer_epoch=0, leader_epoch=-1)
            except StorageError:
                assert log.producers.entries == in_the_log(log)[0]
        entries, _ = in_the_log(log)
        assert log.producers.entries == entries
        check(open_log(fs.after_kill(), 0), 0)


def test_a_snapshot_removed_with_its_batches_stays_removed() -> None:
    plain = encode_batch([NewRecord(b"plain")])
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, 0)
    log.append(batch(log, IDEMPOTENT), leader_epoch=-1)
    while len(log.segments) < 3:
        log.append(plain, leader_epoch=-1)
    base = log.log_end_offset - 1
    log.append(batch(log, IDEMPOTENT), leader_epoch=-1)
    log.close()
    fs.truncate(fs.open(f"{FOLDER}/{base:020d}.log"), 1)
    log = open_log(fs, base)
    for _ in range(2):
        log.append(plain, leader_epoch=-1)
    fs.fail("fsync_dir")
    with pytest.raises(StorageError):
        log.flush()
    check(open_log(fs.after_cut(), base), base + 2)


def test_a_producer_whose_batches_are_deleted_is_known_after_a_power_cut() -> None:
    """Only the snapshot knows it."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, 0)
    log.append(batch(log, IDEMPOTENT), leader_epoch=-1)
    while len(log.segments) < 3:
        log.append(encode_batch([NewRecord(b"plain")]), leader_epoch=-1)
    log.raise_log_start_offset(log.log_end_offset)
    assert log.apply_retention().deleted_segments > 1
    log.flush()
    assert open_log(fs.after_cut(), log.recovery_point).producers.entries == log.producers.entries


def test_aborted_transactions_survive_a_power_cut_when_idle() -> None:
    fs = fs_with_folder(FOLDER)
    workload = Workload(fs)
    workload.run()
    log = Log(fs.after_cut(), ManualClock(), FOLDER, TopicPartition("t", 0), CONFIG, clean=True)
    assert log.recovery.recovered_segments == 0
    check(log, workload.flushed)
