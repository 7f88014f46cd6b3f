"""The first segments of a compacted log are lost where compaction has replaced them, and not deleted.

What compaction has replaced is still in the folder, for `file.delete.delay.ms`, and a start that took it for deleted
would have the log begin later. Once it is led, so would all other replicas, and the newest values of keys were gone.
"""

from itertools import combinations

import pytest

from millrace_broker.storage import LogManager
from millrace_support.clock import ManualClock
from millrace_support.compacted_logs import Store, T, put
from millrace_support.crash_fs import CrashFileSystem

pytestmark = pytest.mark.usefixtures("without_logs")
FOLDER = "/data/t-0"
KEEPS_REPLACED = {"file_delete_delay_ms": "60000"}
INDEXES = (".index", ".timeindex", ".snapshot")
SOME = [names for count in range(len(INDEXES) + 1) for names in combinations(INDEXES, count)]


def lose(fs: CrashFileSystem, base_offset: int, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        path = f"{FOLDER}/{base_offset:020d}{suffix}"
        if fs.exists(path):
            fs.unlink(path)
    fs.fsync_dir(FOLDER)


def compacted(gone_before: tuple[str, ...]) -> tuple[CrashFileSystem, list[int], int]:
    """Returns the disk of a killed broker, the base offsets of its compacted log's segments, and that log's end."""
    store = Store()
    log = store.log(**KEEPS_REPLACED)
    for number in range(40):
        put(log, (f"key {number % 9}", f"value {number}"))
    log.flush()
    store.manager.checkpoint()
    lose(store.fs, 0, gone_before)
    store.compact()
    left = store.fs.after_kill()
    return left, [segment.base_offset for segment in log.segments], log.log_end_offset


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("gone_behind", SOME, ids=str)
@pytest.mark.parametrize("gone_before", SOME, ids=str)
def test_what_is_lost_behind_a_compaction_is_not_deleted(
    gone_before: tuple[str, ...], gone_behind: tuple[str, ...], count: int
) -> None:
    fs, bases, end = compacted(gone_before)
    assert len(bases) > 2
    assert any(".deleted" in name for name in fs.listdir(FOLDER))
    for base in bases[:count]:
        lose(fs, base, (".log", *gone_behind))
    for _ in range(2):
        manager = LogManager(fs, ManualClock(), ["/data"], {}, "c" * 22, 1)
        manager.start()
        log = manager.logs()[T]
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        damage = [(one.start_offset, one.end_offset) for _, one in log.damage]
        assert damage[0][0] == 0
        assert damage[-1][1] == bases[count]
        fs = fs.after_kill()
