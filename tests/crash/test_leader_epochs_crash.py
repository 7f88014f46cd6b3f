"""The power goes, or the process, at every operation of a log whose leaders change: it knows where each epoch begins.

The file of leader epochs is written by flushes, on a worker, and lags behind the log meanwhile.
"""

from random import Random

import pytest

from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.sync_lane import SyncLane
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder
from millrace_support.held_worker import HeldWorker

FOLDER = "/data/flights-0"
PARTITION = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150, file_delete_delay_ms=0)


def opened(fs: CrashFileSystem, recovery_point: int = 0, lane: SyncLane | None = None) -> Log:
    return Log(fs, ManualClock(), FOLDER, PARTITION, CONFIG, recovery_point=recovery_point, lane=lane)


def batch(first: int, count: int) -> bytes:
    return encode_batch([NewRecord(b"%d" % (first + slot)) for slot in range(count)])


def fetched(first: int, count: int, epoch: int) -> bytes:
    """A batch as a follower gets it from the leader of an epoch."""
    source = Log(fs_with_folder(FOLDER), ManualClock(), FOLDER, PARTITION, LogConfig())
    source.truncate_fully_and_start_at(first)
    source.append(batch(first, count), leader_epoch=epoch)
    return source.read(first, 1 << 20, up_to_offset=source.log_end_offset)


def expected_entries(log: Log) -> tuple[tuple[int, int], ...]:
    """Where each epoch begins, by the batches."""
    firsts: dict[int, int] = {}
    for segment in log.segments:
        for _, header in segment.headers(0):
            firsts.setdefault(header.partition_leader_epoch, header.base_offset)
    return tuple(sorted(firsts.items()))


class Workload:
    """Appends in many epochs; `recovery_point` is the highest that a checkpoint may have."""

    def __init__(self, fs: CrashFileSystem, seed: int, *, follows: bool) -> None:
        self._fs = fs
        self._seed = seed
        self._follows = follows
        self.recovery_point = 0

    def run(self) -> None:
        chance, lane, worker = Random(self._seed), SyncLane(), HeldWorker()
        lane.start(worker, lambda _: None)
        log = opened(self._fs, lane=lane)
        epoch = 0
        for _ in range(14):
            epoch += chance.choice([0, 0, 1, 3])
            self._append(log, epoch, 1 + chance.randrange(3))
            if chance.random() < 0.3:
                log.flush_soon()
                worker.work()
                self.recovery_point = log.recovery_point
            if self._follows and chance.random() < 0.2:
                epoch += 1
                self._truncate(log, chance.randint(log.log_start_offset, log.log_end_offset))
        log.close()

    def _append(self, log: Log, epoch: int, count: int) -> None:
        if self._follows:
            log.append_as_follower(fetched(log.log_end_offset, count, epoch), leader_epoch=epoch)
        else:
            log.append(batch(log.log_end_offset, count), leader_epoch=epoch)

    def _truncate(self, log: Log, offset: int) -> None:
        """Cuts as `LogManager` does: the checkpoint is lowered first."""
        if offset < log.log_end_offset:
            self.recovery_point = min(self.recovery_point, log.end_if_truncated(offset))
            log.truncate_to(offset)


@pytest.mark.parametrize("follows", [False, True], ids=["leads", "follows"])
@pytest.mark.parametrize("seed", range(3))
def test_a_log_knows_where_each_epoch_begins_after_a_crash(seed: int, follows: bool) -> None:
    fs = fs_with_folder(FOLDER)
    work = Workload(fs, seed, follows=follows)
    for cut_at in fs.each_change(work.run):
        for left in (fs.after_kill(), fs.after_cut(None), fs.after_cut(Random(cut_at))):
            log = opened(left, work.recovery_point)
            assert log.leader_epochs.entries == expected_entries(log)
            log.close()
            again = Log(left, ManualClock(), FOLDER, PARTITION, CONFIG, clean=True)
            assert again.leader_epochs.entries == expected_entries(again)


def test_a_full_disk_lets_no_recovery_point_pass_an_epoch_that_only_the_batches_tell() -> None:
    fs = fs_with_folder(FOLDER)
    log = opened(fs)
    log.append(batch(0, 2), leader_epoch=1)
    log.flush()
    log.append(batch(2, 2), leader_epoch=1)
    log.append(batch(4, 2), leader_epoch=2)
    fs.capacity_bytes = fs.used_bytes
    log.flush()
    assert (log.recovery_point, log.log_end_offset) == (4, 6)
    assert opened(fs.after_kill(), 4).leader_epochs.entries == ((1, 0), (2, 4))
    fs.capacity_bytes = None
    log.flush()
    assert log.recovery_point == 6
