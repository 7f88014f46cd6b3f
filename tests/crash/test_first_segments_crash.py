"""No crash lets a start take deleted first segments for lost ones, and it notices each time that they are lost.

Chance draws what happens to a log in one of two data folders: appends, deletions, truncations, compaction, moves, a new
topic of its name, checkpoints that find no room, and clean stops. At every change of some of these steps the process is
killed, or the power goes, also again during the start that follows.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from millrace.errors import StorageError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogManager, TopicPartition
from millrace_broker.storage.checkpoints import is_checked, read_offsets
from millrace_broker.storage.filenames import LOG_START_OFFSET_CHECKPOINT, parse_segment_file_name
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.log_moves import finish_move

KEY, BESIDE = TopicPartition("t", 0), TopicPartition("beside", 0)
DIRS = ["/one", "/two"]
PROPERTIES = {"log.segment.bytes": "300", "log.index.interval.bytes": "100", "log.retention.ms": "-1"}
DELAYS = ("0", "0", "5000")
CLEANER = CleanerConfig(dedupe_buffer_bytes=24 * 7)
LEAST_ROOM, MOST_ROOM = 0, 400
Step = Callable[["Life"], None]


def batch(offset: int) -> bytes:
    return encode_batch([NewRecord(b"%d" % offset, key=b"%d" % (offset % 4), timestamp_ms=1_700_000_000_000)])


class Life:
    """A broker's storage with the log in question; `lowest` is the offset below which it never starts after a crash."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.policy = self.chance.choice(["delete", "delete", "delete", "compact,delete"])
        self.config = {"cleanup.policy": self.policy, "file.delete.delay.ms": self.chance.choice(DELAYS)}
        self.fs = CrashFileSystem()
        self.topic_id = uuid.UUID(int=1)
        self.highest = self.lowest = 0
        self.start()

    def start(self) -> None:
        self.clock = ManualClock()
        self.logs = LogManager(self.fs, self.clock, DIRS, PROPERTIES, "c" * 22, 1)
        self.logs.start()
        if (found := self.logs.topic_id(KEY)) is not None:
            self.topic_id = found
        for key in (KEY, BESIDE):
            self.logs.create(key, self.topic_id if key == KEY else uuid.UUID(int=0), self.config)

    @property
    def log(self) -> Log:
        return self.logs.logs()[KEY]

    def note(self) -> None:
        """Notes how far the start has come."""
        self.highest = max(self.highest, self.log.log_start_offset)

    # The steps.

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 9)):
            self.log.append(batch(self.log.log_end_offset), leader_epoch=0)

    def flush(self) -> None:
        self.log.flush()

    def flush_due(self) -> None:
        self.clock.advance(1)
        self.logs.flush_due()

    def checkpoint(self) -> None:
        self.logs.checkpoint()
        self.lowest = self.log.log_start_offset

    def delete_records(self) -> None:
        self.log.raise_log_start_offset(self.chance.randint(self.log.log_start_offset, self.log.log_end_offset))
        self.note()
        list(self.logs.retention())
        self.note()

    def remove(self) -> None:
        self.clock.advance(self.chance.choice([0, 1000, 6000]))
        self.logs.remove_deleted()

    def cut(self) -> None:
        offset = self.chance.randint(max(self.log.log_start_offset - 8, 0), self.log.log_end_offset)
        self.lowest = min(self.lowest, offset)
        self.logs.truncate_to({KEY: offset})
        self.note()

    def begin_afresh(self) -> None:
        log = self.log
        offset = self.chance.choice([max(log.log_start_offset - 7, 0), log.log_start_offset, log.log_end_offset + 5])
        self.lowest, self.highest = min(self.lowest, offset), max(self.highest, offset)
        self.logs.truncate_fully_and_start_at(KEY, offset)

    def compact(self) -> None:
        LogCleaner(self.fs, self.clock, self.logs, CLEANER).run(force=True)
        self.logs.release_replaced()

    def move(self) -> None:
        source = os.path.dirname(self.log.directory)
        copy = self.logs.moves.begin(KEY, DIRS[1 - DIRS.index(source)])
        try:
            copy.catch_up(self.log, 1e300)
            finish_move(self.logs, KEY)
        except StorageError:
            if KEY in self.logs.moves.copies():
                self.logs.moves.drop(KEY)
            raise

    def make_again(self) -> None:
        self.lowest = 0
        self.logs.delete(KEY)
        self.topic_id = uuid.UUID(int=self.topic_id.int + 1)
        self.logs.create(KEY, self.topic_id, self.config)

    def stop(self) -> None:
        self.logs.close()
        self.start()

    STEPS = (append,) * 6 + (delete_records,) * 4 + (remove,) * 4 + (checkpoint,) * 3
    STEPS += (flush, flush_due, cut, begin_afresh, compact, move, make_again, stop)

    def step(self) -> None:
        """Takes one step, some of them with hardly any room on the disk."""
        step = self.chance.choice(self.STEPS)
        is_tight = step in {Life.remove, Life.checkpoint, Life.delete_records, Life.cut} and self.chance.random() < 0.3
        self.fs.capacity_bytes = self.fs.used_bytes + self.chance.randint(LEAST_ROOM, MOST_ROOM) if is_tight else None
        with suppress(StorageError):
            step(self)
        self.fs.capacity_bytes = None

    def go_on(self, after: CrashFileSystem, lowest: int) -> None:
        """Goes on from what a crash has left."""
        self.fs, self.lowest = after, lowest
        self.start()
        self.note()


def opened(fs: CrashFileSystem) -> LogManager:
    logs = LogManager(fs, ManualClock(), DIRS, PROPERTIES, "c" * 22, 1)
    logs.start()
    return logs


def check(fs: CrashFileSystem, lowest: int, highest: int, told: str) -> None:
    """Opens the log, and asks for no damage, and a start that it may have."""
    log = opened(fs).get(KEY)
    if log is None:
        return  # the topic was just being made
    assert log.damage == [], told
    assert lowest <= log.log_start_offset <= highest, told
    offset = log.log_start_offset
    while data := log.read(offset, 1, up_to_offset=log.log_end_offset):
        assert all(record.value == b"%d" % record.offset for record in decode_records(data)), told
        offset = [header for _, header in walk(data)][-1].next_offset
    assert offset == log.log_end_offset, told


def crashed(fs: CrashFileSystem, chance: Random) -> CrashFileSystem:
    """Returns what a kill or a loss of power leaves."""
    return chance.choice([fs.after_kill, fs.after_cut, lambda: fs.after_cut(Random(chance.random()))])()


def each_crash(fs: CrashFileSystem, work: Callable[[], object], chance: Random) -> Iterator[CrashFileSystem]:
    """Does `work`, and yields what a crash before each of its changes leaves, and behind the last one."""
    with suppress(AssertionError):  # there was no change
        for _ in fs.each_change(work):
            yield crashed(fs, chance)
    yield crashed(fs, chance)


@pytest.mark.usefixtures("without_logs")
@pytest.mark.soak(rounds=8, minutes=2)
def test_no_crash_makes_lost_segments_of_deleted_ones(rounds) -> None:
    for seed in rounds:
        life = Life(seed)
        chance = Random(-seed)
        for number in range(30):
            told = f"seed {seed}, step {number}"
            if chance.random() < 0.7:
                life.step()
                continue
            lowest = life.lowest
            left = list(each_crash(life.fs, life.step, chance))
            lowest = min(lowest, life.lowest)
            for after in left:
                check(after.after_kill(), lowest, life.highest, told)
            after = chance.choice(left)
            for again in each_crash(again_fs := after.after_kill(), lambda: opened(again_fs), chance):
                check(again, lowest, life.highest, f"{told}, twice")
            if chance.random() < 0.6:
                life.go_on(after, lowest)


def known_start(fs: CrashFileSystem, data_dir: str) -> int | None:
    path = f"{data_dir}/{LOG_START_OFFSET_CHECKPOINT}"
    return read_offsets(fs, path).get(KEY) if is_checked(fs, path) else None


def has_sign(fs: CrashFileSystem) -> bool:
    """Returns whether a name of a deleted segment is left, or a swap is to be finished."""
    folders = (f"{data_dir}/{KEY}" for data_dir in DIRS if fs.exists(f"{data_dir}/{KEY}"))
    return any(name.endswith((".log.deleted", ".swap")) for folder in folders for name in fs.listdir(folder))


def lose_first(fs: CrashFileSystem) -> tuple[int, int] | None:
    """Takes all files of the first segment away; returns the range that a start misses, None where it can't know."""
    data_dir = next((each for each in DIRS if fs.exists(f"{each}/{KEY}")), None)
    if data_dir is None:
        return None
    folder = f"{data_dir}/{KEY}"
    names = fs.listdir(folder)
    logs = sorted(parsed[0] for name in names if (parsed := parse_segment_file_name(name)) and parsed[1] == ".log")
    start = known_start(fs, data_dir)
    if (
        len(logs) < 2
        or start is None
        or start >= logs[1]
        or any(name.endswith((".deleted", ".swap")) for name in names)
    ):
        return None
    for name in names:
        if name.startswith(f"{logs[0]:020d}"):
            fs.lose(f"{folder}/{name}")
    return start, logs[1]


@pytest.mark.usefixtures("without_logs")
@pytest.mark.soak(rounds=16, minutes=1)
def test_lost_first_segments_are_noticed_whatever_was_before(rounds, record_property) -> None:
    noticed = 0
    for seed in rounds:
        life = Life(seed)
        chance = Random(-seed)
        for number in range(30):
            left = life.fs.after_kill() if chance.random() < 0.8 else life.fs.after_cut(chance)
            missing = lose_first(left)
            life.step()
            if missing is None:
                continue
            noticed += 1
            told = f"seed {seed}, step {number}"
            for after in [left, *each_crash(started := left.after_kill(), lambda fs=started: opened(fs), chance)]:
                if has_sign(after):
                    continue  # the power has brought it back
                log = opened(after).logs()[KEY]
                assert log.log_start_offset == missing[0], told
                if log.log_end_offset > missing[0]:  # or the power has taken all that was behind, too
                    found = [(one.start_offset, one.end_offset) for _, one in log.damage]
                    assert (found[0][0], max(found[-1][1], missing[1])) == (missing[0], found[-1][1]), told
    record_property("noticed", noticed)
    assert noticed
