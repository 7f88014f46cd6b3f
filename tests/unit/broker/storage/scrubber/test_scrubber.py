"""The scrubber of a data directory: its rounds, restarts in the middle of one, and failures of one log alone."""

from threading import Event
from uuid import UUID

import pytest

from millrace.errors import CompactionStoppedError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, ScrubConfig, TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.scrubber.scrubber import DirScrubber
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

CONFIG = ScrubConfig(bytes_per_second=1 << 40, interval_ms=1000)
FOLDER = "/data"
KEYS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
CHECKPOINT = f"{FOLDER}/scrub-checkpoint"


class Moved(ManualClock):
    """A clock whose time passes in the waits of the scrubber."""

    def __init__(self):
        super().__init__()
        self.stopping = Event()
        self.stopping.wait = self.wait

    def wait(self, seconds):
        self.advance(max(round(seconds * 1000), 1))
        return self.stopping.is_set()


class Scene:
    """A manager of three logs of some segments each, and a scrubber."""

    def __init__(self):
        self.fs, self.clock = CrashFileSystem(), Moved()
        self.logs = LogManager(self.fs, self.clock, [FOLDER], {"log.segment.bytes": "400"}, "cluster", 1)
        self.logs.start()
        for key in KEYS:
            log = self.logs.create(key, UUID(int=1 if key.topic == "a" else 2), {})
            for number in range(20):
                log.append(encode_batch([NewRecord(b"%d" % number * 9)] * 2), leader_epoch=0)
            log.flush()
        self.checked = []
        self.again()

    def again(self):
        self.scrubber = DirScrubber(self.fs, self.clock, self.logs, self.logs.dirs.all[0], self.clock.stopping, CONFIG)
        self.scrubber.load()

    def log(self, key):
        return self.logs.logs()[key]


@pytest.fixture
def scene(monkeypatch):
    scene, scrub = Scene(), Log.scrub

    def noted(log, segment, pace):
        scene.checked.append((log.topic_partition, segment.base_offset))
        return scrub(log, segment, pace)

    monkeypatch.setattr(Log, "scrub", noted)
    return scene


def all_of(scene):
    return [(key, one.base_offset) for key in KEYS for one in scene.log(key).segments]


def harm(scene, key, number):
    """Flips a bit in the first batch of a segment of a log, and returns its offsets."""
    segment = scene.log(key).segments[number]
    header = next(walk(segment.read_at(0, segment.size_bytes)))[1]
    byte = segment.read_at(70, 1)[0]
    scene.fs.pwritev(segment.fd, [bytes([byte ^ 1])], 70)
    return header.base_offset, header.next_offset


def test_a_round_checks_every_segment_once_and_the_next_begins_after_the_interval(scene):
    scene.scrubber.step()
    assert scene.checked == all_of(scene)
    assert len(scene.checked) > 9
    scene.scrubber.step()
    assert scene.checked == all_of(scene)
    scene.clock.advance(CONFIG.interval_ms)
    scene.scrubber.step()
    assert scene.checked == all_of(scene) * 2
    progress = scene.scrubber.progress
    assert (progress.all_rounds, progress.all_segments) == (2, len(scene.checked))
    assert progress.checked_bytes == progress.total_bytes == sum(log.size_bytes for log in scene.logs.logs().values())
    assert progress.all_bytes == 2 * progress.total_bytes
    assert (progress.last_findings, progress.all_findings, progress.round_started_ms) == (0, 0, None)


def test_damage_is_found_once_and_named(scene):
    start, end = harm(scene, KEYS[1], 2)
    for _ in range(2):
        scene.scrubber.step()
        scene.clock.advance(CONFIG.interval_ms)
    [[told]] = scene.logs.damage().values()
    assert f"offsets {start} to {end - 1} are damaged" in told
    assert scene.scrubber.progress.all_findings == 1
    assert scene.scrubber.rounds.last.findings == 0  # of the second round, which knows it


@pytest.mark.parametrize("checked", [0, 1, 7])
def test_a_restart_goes_on_where_the_round_was(scene, checked):
    def stop_after(log, segment, pace, scrub=Log.scrub):
        if len(scene.checked) == checked:
            raise CompactionStoppedError("stopped")
        return scrub(log, segment, pace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "scrub", stop_after)
        with pytest.raises(CompactionStoppedError):
            scene.scrubber.step()
    before = scene.scrubber.progress
    scene.scrubber.save()
    scene.again()
    assert scene.scrubber.progress.checked_bytes == before.checked_bytes
    scene.scrubber.step()
    assert scene.checked == all_of(scene)


@pytest.mark.parametrize("content", [None, b"", b"nonsense\n", b"version: 0\nnow 1 2 3\ncrc32c: 00000000\n"])
def test_a_lost_or_damaged_file_begins_the_round_from_the_start(scene, content):
    scene.scrubber.step()
    scene.fs.unlink(CHECKPOINT)
    if content is not None:
        fd = scene.fs.open(CHECKPOINT, create=True)
        scene.fs.pwritev(fd, [content], 0)
        scene.fs.close(fd)
    scene.again()
    scene.scrubber.step()
    assert scene.checked == all_of(scene) * 2


@pytest.mark.parametrize("failing", KEYS)
def test_one_logs_failure_stops_no_other_and_is_tried_again(scene, failing, monkeypatch):
    """A read fails in the first segment of a log, and the next round checks it."""
    scrub = Log.scrub

    def fail_once(log, segment, pace):
        if (log.topic_partition, segment.base_offset) == (failing, 0) and (failing, 0) not in scene.checked:
            scene.fs.fail("pread")
        return scrub(log, segment, pace)

    monkeypatch.setattr(Log, "scrub", fail_once)
    scene.scrubber.step()
    assert scene.checked == all_of(scene)
    assert (scene.scrubber.progress.all_failures, scene.scrubber.rounds.last.left) == (1, 1)
    scene.clock.advance(CONFIG.interval_ms)
    scene.scrubber.step()
    assert (scene.scrubber.progress.all_failures, scene.scrubber.rounds.last.left) == (1, 0)


def test_logs_that_are_deleted_or_made_meanwhile_are_no_failure(scene, monkeypatch):
    scrub = Log.scrub

    def changed(log, segment, pace):
        if len(scene.checked) == 2:
            scene.logs.delete(KEYS[0], KEYS[1])
            scene.logs.create(TopicPartition("a", 2), UUID(int=1), {})
        return scrub(log, segment, pace)

    monkeypatch.setattr(Log, "scrub", changed)
    scene.scrubber.step()
    assert scene.scrubber.progress.all_failures == 0
    assert scene.checked[-1][0] == KEYS[2]


def test_nothing_is_read_while_it_is_turned_off(scene):
    scene.scrubber.config = ScrubConfig(bytes_per_second=0, interval_ms=1000)
    scene.scrubber.step()
    assert scene.checked == []
