"""A follower fetches from the end of its log, and does not cut off damage that hides its leader epochs."""

from uuid import UUID

import pytest

from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem, fs_with_folder

FOLDER = "/data/t-0"
END, EPOCH = 3, 1


def open_log(fs: CrashFileSystem, end: int) -> Log:
    config = LogConfig.from_properties({}, {})
    key = TopicPartition("t", 0)
    return Log(fs, ManualClock(0), FOLDER, key, config, clean=bool(end), recovery_point=end, high_watermark=end)


def restarted(*, is_damaged: bool) -> Log:
    """A log of one batch; where it `is_damaged`, neither that nor a file tells its leader epoch."""
    fs = fs_with_folder(FOLDER)
    log = open_log(fs, 0)
    log.append(encode_batch([NewRecord(b"value")] * END), leader_epoch=EPOCH)
    log.flush()
    path = log.segments[0].path
    log.close()
    if is_damaged:
        fs.damage(path, lambda data: data.__delitem__(slice(26, None)))
        fs.damage(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}", lambda data: data.clear())
    return open_log(fs, END)


@pytest.mark.parametrize("high_watermark", [0, 1, END])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_damage_that_hides_the_leader_epochs_is_not_cut_off(is_damaged: bool, high_watermark: int) -> None:
    """A leader that does not know yet who is in sync may say that less is committed than was."""
    log = restarted(is_damaged=is_damaged)
    followed = FollowedPartition(log, UUID(int=1), {}, leader=2, leader_epoch=2)
    log.high_watermark = high_watermark
    assert [(one.start_offset, one.end_offset) for _, one in log.damage] == [(0, END)] * is_damaged
    asked = followed.asked()
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (END, -1 if is_damaged else EPOCH)
