"""The lane of a data directory syncs each log that waits once, whatever has gathered meanwhile, and tells of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from millrace.errors import StorageError
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.sync_lane import SyncLane
from millrace_support.held_worker import HeldWorker


def nothing() -> None:
    """Syncs without an event."""


class FakeLog:
    """A log that counts its syncs."""

    def __init__(self, index: int, work: Callable[[], object] = nothing) -> None:
        self.topic_partition = TopicPartition("t", index)
        self.is_offline = False
        self.syncs = 0
        self.work = work

    def sync(self) -> bool:
        self.syncs += 1
        return self.work() is not False


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def worker() -> HeldWorker:
    return HeldWorker()


@pytest.fixture
def lane(worker: HeldWorker, told: list[int]) -> SyncLane:
    lane = SyncLane()
    lane.start(worker, lambda one: told.append(one.partition))
    return lane


def test_appends_that_gathered_are_synced_together(lane: SyncLane, worker: HeldWorker, told: list[int]) -> None:
    logs = [FakeLog(index) for index in range(3)]
    for log in logs * 5:
        lane.put(log)
    assert (worker.work(), told, [log.syncs for log in logs]) == (1, [0, 1, 2], [1, 1, 1])
    assert worker.work() == 0


def test_an_append_during_a_sync_is_taken_by_the_next(lane: SyncLane, worker: HeldWorker, told: list[int]) -> None:
    log = FakeLog(0)

    def append_meanwhile() -> None:
        if log.syncs == 1:
            lane.put(log)
            lane.put(log)

    log.work = append_meanwhile
    lane.put(log)
    others = lane.do(lambda: log.syncs)
    assert (worker.work(), log.syncs, told) == (2, 1, [0])
    assert others.result() == 1  # other work has its turn between two rounds
    assert (worker.work(), log.syncs, told) == (1, 2, [0, 0])
    assert worker.work() == 0


def test_other_work_of_a_lane_without_a_worker_is_done_at_once() -> None:
    lane, error = SyncLane(), StorageError("no")

    def refuses() -> None:
        raise error

    assert lane.do(lambda: 7).result(0) == 7
    assert lane.do(refuses).exception(0) is error


def test_without_a_worker_the_caller_syncs() -> None:
    def fail() -> None:
        raise StorageError("no")

    lane, log = SyncLane(), FakeLog(0)
    lane.put(log)
    assert log.syncs == 1
    with pytest.raises(StorageError, match="no"):
        lane.put(FakeLog(1, fail))


def test_a_directory_that_fails_is_told_of(lane: SyncLane, worker: HeldWorker, told: list[int]) -> None:
    log, other = FakeLog(0), FakeLog(1)

    def fail() -> None:
        log.is_offline = True
        raise StorageError("offline")

    log.work = fail
    lane.put(log)
    lane.put(other)
    worker.work()
    assert (told, log.syncs, other.syncs) == ([0, 1], 1, 1)


def has_no_descriptor() -> bool:
    raise StorageError("Too many open files")


def has_no_room() -> bool:
    return False


@pytest.mark.parametrize("fail", [has_no_descriptor, has_no_room])
def test_a_sync_that_lost_nothing_is_made_again(
    worker: HeldWorker, told: list[int], caplog: pytest.LogCaptureFixture, fail: Callable[[], bool]
) -> None:
    lane, log, other = SyncLane(), FakeLog(0, fail), FakeLog(1)
    lane.start(worker, lambda one: told.append(one.partition), retry_s=0.001)
    lane.put(log)
    lane.put(other)
    assert (worker.work(), told, log.syncs) == (1, [1], 1)
    beside = lane.do(lambda: "done")
    assert (worker.work(), told, log.syncs, beside.result()) == (2, [1], 2, "done")
    log.work = nothing
    assert (worker.work(), told, log.syncs) == (1, [1, 0], 3)
    assert (worker.work(), other.syncs) == (0, 1)
    assert caplog.text.count("t-0 is synced again every 0.0 s") == 1


@pytest.mark.parametrize("fail", [has_no_descriptor, has_no_room])
def test_a_lane_that_stops_waits_for_no_room(told: list[int], fail: Callable[[], bool]) -> None:
    lane, tried = SyncLane(), Event()

    def fails() -> bool:
        tried.set()
        return fail()

    lane.start(ThreadPoolExecutor(1), lambda one: told.append(one.partition))
    lane.put(FakeLog(0, fails))
    tried.wait()
    lane.stop()
    assert told == [0]


def test_what_waits_is_synced_before_the_lane_stops(told: list[int]) -> None:
    lane, held, free = SyncLane(), Event(), Event()

    def hold() -> None:
        held.set()
        free.wait()

    with ThreadPoolExecutor(1) as stopper:
        lane.start(ThreadPoolExecutor(1), lambda one: told.append(one.partition))
        lane.put(FakeLog(0, hold))
        held.wait()
        lane.put(last := FakeLog(1))
        stopping = stopper.submit(lane.stop)
        free.set()
        stopping.result()
    assert (told, last.syncs) == ([0, 1], 1)
    lane.put(last)
    assert last.syncs == 2
