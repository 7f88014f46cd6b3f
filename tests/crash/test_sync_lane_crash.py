"""The power goes at every operation of appends whose syncs a lane makes: what was acknowledged is still there."""

from random import Random

import pytest

from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.sync_lane import SyncLane
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder
from millrace_support.held_worker import HeldWorker

FOLDER = "/data/flights-0"
PARTITION = TopicPartition("flights", 0)


def batch(first: int, count: int) -> bytes:
    return encode_batch([NewRecord(b"value %d" % (first + slot), timestamp_ms=first + slot) for slot in range(count)])


class Workload:
    """Appends by a leader or a follower, several while a sync waits; knows what may be acknowledged at any time."""

    def __init__(self, fs: CrashFileSystem, flush_messages: int, *, commits_synced: bool, follows: bool) -> None:
        self._fs = fs
        self._config = LogConfig(segment_bytes=500, index_interval_bytes=150, flush_messages=flush_messages)
        self._commits_synced = commits_synced
        self._follows = follows
        self._chance = Random(flush_messages)
        self.acknowledged = self.committed = 0

    def run(self) -> None:
        lane, worker = SyncLane(), HeldWorker()
        lane.start(worker, lambda _: None)
        log = Log(self._fs, ManualClock(), FOLDER, PARTITION, self._config, lane=lane)
        log.commit_synced(commits_synced=self._commits_synced)
        ends = []
        for step in range(16):
            self.append(log, step)
            ends.append(log.log_end_offset)
            self.take(log, ends)
            if self._chance.random() < 0.4:
                worker.work()
                self.take(log, ends)

    def append(self, log: Log, step: int) -> None:
        count, epoch = 1 + step % 3, step // 8
        if self._follows:
            source = Log(fs_with_folder(FOLDER), ManualClock(), FOLDER, PARTITION, LogConfig())
            source.truncate_fully_and_start_at(log.log_end_offset)
            source.append(batch(log.log_end_offset, count), leader_epoch=epoch)
            fetched = source.read(log.log_end_offset, 1 << 20, up_to_offset=source.log_end_offset)
            log.append_as_follower(fetched, leader_epoch=epoch)
        else:
            log.append(batch(log.log_end_offset, count), leader_epoch=epoch)

    def take(self, log: Log, ends: list[int]) -> None:
        """Notes which appends are answered, and what a consumer sees."""
        answered = [end for end in ends if not log.owes_sync(end)]
        self.acknowledged = max([self.acknowledged, *answered])
        self.committed = max(self.committed, log.committable_offset)


@pytest.mark.parametrize("follows", [False, True], ids=["leads", "follows"])
@pytest.mark.parametrize("commits_synced", [False, True], ids=["", "commits synced"])
@pytest.mark.parametrize("flush_messages", [1, 5, 1 << 40])
def test_what_was_acknowledged_survives_a_power_cut(
    flush_messages: int,
    commits_synced: bool,
    follows: bool,
) -> None:
    fs = fs_with_folder(FOLDER)
    work = Workload(fs, flush_messages, commits_synced=commits_synced, follows=follows)
    seen = 0
    for cut_at in fs.each_change(work.run):
        for left in (fs.after_cut(None), fs.after_cut(Random(cut_at))):
            log = Log(left, ManualClock(), FOLDER, PARTITION, LogConfig())
            may_go = flush_messages - 1
            assert log.log_end_offset >= work.acknowledged - may_go
            assert log.log_end_offset >= work.committed - (0 if commits_synced else may_go)
            records = decode_records(
                log.read(0, 1 << 20, up_to_offset=log.log_end_offset) if log.log_end_offset else b""
            )
            assert all(record.value == b"value %d" % record.offset for record in records)
            seen = max(seen, log.log_end_offset)
    assert seen > 0 or flush_messages > 5


@pytest.mark.parametrize("follows", [False, True], ids=["leads", "follows"])
def test_what_a_full_disk_has_left_unsynced_is_synced_once_there_is_room(follows: bool) -> None:
    """No later append has to come, as none does where a follower fetches nothing before its log is synced."""
    fs, lane, worker, told = fs_with_folder(FOLDER), SyncLane(), HeldWorker(), []
    lane.start(worker, told.append, retry_s=0)
    log = Log(fs, ManualClock(), FOLDER, PARTITION, LogConfig(flush_messages=1), lane=lane)
    Workload(fs, 1, commits_synced=False, follows=follows).append(log, 8)
    fs.capacity_bytes = fs.used_bytes  # the file of the leader epochs is not written any more
    for _ in range(3):
        assert worker.work() == 1
        assert (log.owes_sync(), told) == (True, [])
    fs.capacity_bytes = None
    assert worker.work() == 1
    assert (log.owes_sync(), told, worker.work()) == (False, [PARTITION], 0)
