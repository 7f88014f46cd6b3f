"""The purgatory: each operation ends once, by a check or by its deadline."""

import pytest

from millrace_broker.replication.purgatory import Purgatory


class Timers:
    """An event loop's `call_later` under the test's hand."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def call_later(self, delay, callback):
        timer = Timer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.at <= self.now]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.callback()


class Timer:
    def __init__(self, at, callback):
        self.at, self.callback, self.cancelled = at, callback, False

    def cancel(self):
        self.cancelled = True


class Operation:
    def __init__(self):
        self.can_complete, self.ends = False, []

    def try_complete(self, _):
        if self.can_complete:
            self.ends.append("completed")
        return self.can_complete

    def expire(self):
        self.ends.append("expired")


@pytest.fixture
def timers():
    return Timers()


@pytest.fixture
def purgatory(timers):
    return Purgatory(timers.call_later)


def test_a_check_completes_what_can_complete_and_leaves_the_rest(purgatory):
    ready, waiting = Operation(), Operation()
    purgatory.hold(ready, ["a", "b"], 1000)
    purgatory.hold(waiting, ["a"], 1000)
    ready.can_complete = True
    purgatory.check("a")
    purgatory.check("b")
    assert (ready.ends, waiting.ends, len(purgatory)) == (["completed"], [], 1)


def test_a_deadline_expires_once(purgatory, timers):
    operation = Operation()
    purgatory.hold(operation, ["a", "a", "b"], 500)
    timers.advance(0.499)
    assert operation.ends == []
    timers.advance(0.001)
    operation.can_complete = True
    purgatory.check("a")
    purgatory.check("b")
    timers.advance(10)
    assert (operation.ends, len(purgatory)) == (["expired"], 0)


def test_completion_cancels_the_deadline(purgatory, timers):
    operation = Operation()
    purgatory.hold(operation, ["a"], 500)
    operation.can_complete = True
    purgatory.check("a")
    timers.advance(1)
    assert operation.ends == ["completed"]


def test_a_released_operation_never_ends(purgatory, timers):
    operation = Operation()
    purgatory.hold(operation, ["a"], 500)
    purgatory.release(operation)
    operation.can_complete = True
    purgatory.check("a")
    timers.advance(1)
    assert operation.ends == []


def test_expire_all_ends_everything(purgatory):
    operations = [Operation() for _ in range(3)]
    for index, operation in enumerate(operations):
        purgatory.hold(operation, ["same", index], 1000)
    purgatory.expire_all()
    assert [operation.ends for operation in operations] == [["expired"]] * 3
    assert len(purgatory) == 0
