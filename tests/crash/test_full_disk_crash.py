"""Indexes that found no room when they were rebuilt on a full disk are rebuilt again, also after a power cut."""

import uuid
from contextlib import suppress

from millrace.errors import StorageError
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

T = TopicPartition("t", 0)
SETTINGS = {"segment.bytes": "600", "index.interval.bytes": "0"}
TRANSACTIONS = 6


def opened(fs):
    manager = LogManager(fs, ManualClock(1_000_000), ["/data"], {}, "c" * 22, 1)
    manager.start()
    return manager, manager.create(T, uuid.UUID(int=1), SETTINGS)


def stopped_disk():
    """Aborted transactions in several segments, and no index beside the closed ones."""
    fs = CrashFileSystem()
    manager, log = opened(fs)
    for number in range(TRANSACTIONS):
        for sequence in range(number * 4, number * 4 + 4):
            producer = BatchProducer(7, 0, sequence)
            batch = encode_batch([NewRecord(b"x" * 50)], producer=producer, flags=TRANSACTIONAL_FLAG)
            log.append(batch, leader_epoch=0)
        marker = EndTransactionMarker(ControlType.ABORT, 0)
        append_marker(log, marker, producer_id=7, producer_epoch=0, leader_epoch=0)
    manager.close()
    newest = max(name for name in fs.listdir("/data/t-0") if name.endswith(".log")).removesuffix(".log")
    for name in fs.listdir("/data/t-0"):
        if name.endswith("index") and not name.startswith(newest):
            fs.unlink(f"/data/t-0/{name}")
    fs.fsync_dir("/data/t-0")
    return fs


def test_no_aborted_transaction_is_forgotten_where_its_index_found_no_room():
    given = stopped_disk()
    for room in range(0, 260, 12):
        fs = given.after_kill()
        for capacity in (fs.used_bytes + room, fs.used_bytes + room, None):
            fs = fs.after_cut()
            fs.capacity_bytes = capacity
            manager, log = opened(fs)
            assert len(log.aborted_transactions(0, log.log_end_offset)) == TRANSACTIONS
            with suppress(StorageError):
                manager.close()
