"""The purgatory: each operation ends once, by a check or by its deadline."""

import asyncio

import pytest

from millrace.turns import pause, taking
from millrace_broker.replication.purgatory import Purgatory, settle


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
    def __init__(self, effect=lambda: None):
        self.can_complete, self.ends, self.effect = False, [], effect

    def is_ready(self, _):
        return self.can_complete

    def complete(self):
        self.ends.append("completed")
        self.effect()

    def expire(self):
        self.ends.append("expired")
        self.effect()


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


WAYS = {
    "a check": (lambda purgatory, _: purgatory.check("a"), "completed"),
    "a deadline": (lambda _, timers: timers.advance(1), "expired"),
    "the end of the broker": (lambda purgatory, _: purgatory.expire_all(), "expired"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what_follows", ["check", "expire_all", "release", "hold"])
def test_an_end_that_comes_back_to_the_purgatory_ends_nothing_twice(purgatory, timers, way, what_follows):
    """As the end of a replicated append makes a group append its next record to the same partition."""
    operations = []

    def come_back():
        for each in operations:
            each.can_complete = True
        if what_follows == "check":
            purgatory.check("a")
        elif what_follows == "expire_all":
            purgatory.expire_all()
        elif what_follows == "release":
            purgatory.release(operations[0])
        else:
            purgatory.hold(Operation(), ["a"], 100_000)

    operations += [Operation(come_back) for _ in range(3)]
    for each in operations:
        purgatory.hold(each, ["a", "b"], 1000)
    operations[0].can_complete = True
    end, _ = WAYS[way]
    end(purgatory, timers)
    purgatory.check("a")
    timers.advance(1)
    assert [len(each.ends) for each in operations] == [1, 1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_operations_end_one_after_the_other_in_the_order_in_which_they_became_ready(purgatory, timers, way):
    steps = []

    def first():
        steps.append("first begins")
        second.can_complete = third.can_complete = True
        purgatory.check("a")
        purgatory.complete_or_hold(third, "a", 1000)
        steps.append("first ends")

    second, third = Operation(lambda: steps.append("second")), Operation(lambda: steps.append("third"))
    operation = Operation(first)
    operation.can_complete = True
    purgatory.hold(operation, ["a"], 1000)
    purgatory.hold(second, ["a"], 1000)
    end, kind = WAYS[way]
    end(purgatory, timers)
    assert steps == ["first begins", "first ends", "second", "third"]
    assert (operation.ends, third.ends) == ([kind], ["completed"])


def test_what_is_ready_is_never_held(purgatory, timers):
    ready, waiting = Operation(), Operation()
    ready.can_complete = True
    purgatory.complete_or_hold(ready, "a", 1000)
    purgatory.complete_or_hold(waiting, "a", 1000)
    timers.advance(1)
    assert (ready.ends, waiting.ends) == (["completed"], ["expired"])


@pytest.mark.parametrize("way", WAYS)
def test_an_operation_that_fails_is_logged_and_stops_no_other(purgatory, timers, way, caplog):
    def fail():
        raise KeyError("planted")

    failing, other = Operation(fail), Operation()
    for each in (failing, other):
        each.can_complete = True
        purgatory.hold(each, ["a"], 1000)
    end, kind = WAYS[way]
    end(purgatory, timers)
    assert (failing.ends, other.ends, len(purgatory)) == ([kind], [kind], 0)
    assert "planted" in caplog.text


def test_an_operation_that_can_not_tell_whether_it_is_ready_ends_at_its_deadline(purgatory, timers, caplog):
    class Broken(Operation):
        def is_ready(self, _):
            raise KeyError("planted")

    broken, other = Broken(), Operation()
    other.can_complete = True
    purgatory.hold(broken, ["a"], 1000)
    purgatory.hold(other, ["a"], 1000)
    purgatory.check("a")
    assert (broken.ends, other.ends) == ([], ["completed"])
    assert "planted" in caplog.text
    timers.advance(1)
    assert broken.ends == ["expired"]


def test_a_reply_gets_what_is_returned_or_raised_once():
    loop = asyncio.new_event_loop()
    answered, failed, gone = (loop.create_future() for _ in range(3))
    later, never = loop.create_future(), loop.create_future()
    gone.cancel()
    settle(answered, lambda: 1)
    settle(answered, lambda: 2)
    settle(failed, lambda: {}["missing"])
    settle(gone, lambda: 3)
    made, lost = loop.create_future(), loop.create_future()
    settle(later, lambda: made)
    settle(never, lambda: lost)
    made.set_result(4)
    lost.cancel()
    loop.run_until_complete(later)
    loop.close()
    assert (later.result(), never.done()) == (4, False)
    assert answered.result() == 1
    assert isinstance(failed.exception(), KeyError)
    assert gone.cancelled()


class Turns:
    """Turns between which other work runs: at each pause."""

    def __init__(self, work):
        self.pause = work


class Lengthy(Operation):
    """An operation that looks at so much that its turn may end."""

    def is_ready(self, key):
        is_ready = super().is_ready(key)
        pause()
        return is_ready


def test_no_other_work_runs_while_operations_are_asked(purgatory):
    """It could hold further operations, or make one ready that is about to be held."""
    held, asked, others = Lengthy(), Lengthy(), []

    def work():
        others.append(Operation())
        purgatory.hold(others[-1], ["a"], 1000)

    purgatory.hold(held, ["a"], 1000)
    with taking(Turns(work)):
        purgatory.check("a")
        purgatory.complete_or_hold(asked, "a", 1000)
    assert others == []
    held.can_complete = asked.can_complete = True
    purgatory.check("a")
    assert (held.ends, asked.ends) == (["completed"], ["completed"])
