"""Leases in a bucket: who is taken for dead commits nothing more, whichever call fails, and whose clock is wrong."""

import itertools
from contextlib import suppress

import pytest

from millrace_pipelines.warehouse.errors import LeaseLostError, StoreError
from millrace_pipelines.warehouse.stores.lease import Progress, Running
from millrace_pipelines.warehouse.stores.timed_leases import LEASE_MS, TimedLeases
from millrace_support.memory_store import MemoryStore, Objects

DAY_MS = 24 * 60 * 60 * 1000
NOBODY = (set(), 0)
RUNS = ({"op"}, 0)
ENDED = (set(), 1)


class Clock:
    """A machine's clock, which may be wrong."""

    def __init__(self, now_ms=0):
        self._now_ms = now_ms

    def now_ms(self):
        return self._now_ms

    def monotonic_ms(self):
        return self._now_ms


@pytest.fixture
def objects():
    return Objects()


def leases(objects, clock_ms=0, **door):
    return TimedLeases(MemoryStore(objects, **door), Clock(clock_ms))


def asked(asker, *, dry_run=False):
    """Who runs, and how many leases were ended."""
    found = asker.ask(dry_run=dry_run)
    return set(found.held), len(found.ended)


def crashed(objects):
    """An operation that began and whose process is gone: its lease is left as it was."""
    with pytest.raises(StoreError), leases(objects).hold("op"):
        raise StoreError("the end of it")


def test_a_lease_is_there_while_its_operation_runs(objects):
    assert asked(leases(objects)) == NOBODY
    with leases(objects).hold("op"):
        assert asked(leases(objects)) == RUNS
    assert asked(leases(objects)) == NOBODY
    assert not objects.content


@pytest.mark.parametrize("asker_is_off_by_ms", [-DAY_MS, 0, DAY_MS])
@pytest.mark.parametrize("holder_is_off_by_ms", [-DAY_MS, 0, DAY_MS])
def test_only_the_store_s_clock_counts(objects, asker_is_off_by_ms, holder_is_off_by_ms):
    with leases(objects, DAY_MS + holder_is_off_by_ms).hold("op") as held:
        objects.pass_ms(LEASE_MS)
        assert asked(leases(objects, DAY_MS + asker_is_off_by_ms)) == RUNS
        held.confirm()
        objects.pass_ms(LEASE_MS)
        assert asked(leases(objects, DAY_MS + asker_is_off_by_ms)) == RUNS
        objects.pass_ms(1)
        assert asked(leases(objects, DAY_MS + asker_is_off_by_ms)) == ENDED


def test_a_holder_that_was_stopped_finds_its_lease_taken(objects):
    with leases(objects).hold("op") as held:
        objects.pass_ms(LEASE_MS + 1)
        ended = leases(objects).ask(dry_run=False).ended
        assert len(ended) == 1
        with pytest.raises(LeaseLostError, match=r"this operation \(op\) could not renew its lease"):
            held.confirm()
        leases(objects).forget(ended)
        with pytest.raises(LeaseLostError):
            held.confirm()
    assert not objects.content


def test_a_holder_that_nobody_asked_about_goes_on(objects):
    with leases(objects).hold("op") as held:
        objects.pass_ms(10 * LEASE_MS)
        held.confirm()
        assert asked(leases(objects)) == RUNS


def test_a_holder_that_can_t_renew_commits_nothing(objects):
    class Gone(MemoryStore):
        def fetch(self, name):
            raise StoreError("no route to the store")

    with TimedLeases(Gone(objects), Clock()).hold("op") as held, pytest.raises(LeaseLostError, match="no route"):
        held.confirm()


def test_of_a_crashed_operation_the_lease_expires(objects):
    crashed(objects)
    assert asked(leases(objects)) == RUNS
    objects.pass_ms(LEASE_MS + 1)
    ended = leases(objects).ask(dry_run=False).ended
    assert len(ended) == 1
    leases(objects).forget(ended)
    assert not objects.content


def test_an_asker_that_crashed_before_its_fence_leaves_that_to_the_next(objects):
    crashed(objects)
    objects.pass_ms(LEASE_MS + 1)
    assert asked(leases(objects)) == ENDED
    assert asked(leases(objects)) == RUNS  # as far as this one can know
    objects.pass_ms(LEASE_MS + 1)
    assert asked(leases(objects)) == ENDED


def test_a_dry_run_ends_nothing(objects):
    crashed(objects)
    objects.pass_ms(LEASE_MS + 1)
    before = dict(objects.content)
    assert asked(leases(objects), dry_run=True) == NOBODY
    assert objects.content == before


def test_a_renewal_that_comes_between_keeps_the_lease(objects):
    with leases(objects).hold("op") as held:
        objects.pass_ms(LEASE_MS + 1)

        class Slow(MemoryStore):
            def update(self, name, content, facts):
                held.confirm()
                super().update(name, content, facts)

        assert asked(TimedLeases(Slow(objects), Clock())) == RUNS
        held.confirm()


def test_of_two_askers_both_know_that_it_has_ended(objects):
    crashed(objects)
    objects.pass_ms(LEASE_MS + 1)
    second = []

    class Slow(MemoryStore):
        def update(self, name, content, facts):
            second.append(asked(leases(objects)))
            super().update(name, content, facts)

    assert asked(TimedLeases(Slow(objects), Clock())) == ENDED
    assert second == [ENDED]


def test_an_asker_that_finds_it_forgotten_leaves_it_alone(objects):
    crashed(objects)
    objects.pass_ms(LEASE_MS + 1)

    class Slow(MemoryStore):
        def update(self, name, content, facts):
            leases(objects).forget(leases(objects).ask(dry_run=False).ended)
            super().update(name, content, facts)

    assert asked(TimedLeases(Slow(objects), Clock())) == RUNS


def test_an_operation_that_begins_again_has_two_leases(objects):
    crashed(objects)
    objects.pass_ms(LEASE_MS + 1)
    with leases(objects).hold("op"), leases(objects).hold("op"):
        assert asked(leases(objects)) == ({"op"}, 1)


def test_progress_goes_with_a_renewal(objects):
    with leases(objects, 7).hold("op") as held:
        assert leases(objects).running() == [Running("op", 7, None)]
        held.note(Progress(5, 1, 2, 3))
        held.confirm()
        assert leases(objects).running() == [Running("op", 7, Progress(5, 1, 2, 3))]


def test_what_those_who_asked_left_behind_goes(objects):
    with leases(objects).hold("op"):
        with pytest.raises(StoreError):
            asked(leases(objects, fails_at=4), dry_run=False)  # the removal of its clock
        assert len(objects.content) == 2
        objects.pass_ms(LEASE_MS)
        asked(leases(objects), dry_run=False)
        objects.pass_ms(1)
        asked(leases(objects), dry_run=True)
        assert len(objects.content) == 2
        asked(leases(objects), dry_run=False)
        assert len(objects.content) == 1


@pytest.mark.parametrize("does_it", [False, True], ids=["fails", "answer lost"])
@pytest.mark.parametrize("whose", ["holder", "asker"])
@pytest.mark.parametrize("late_ms", [0, LEASE_MS + 1])
def test_whichever_call_fails_nobody_commits_whose_lease_was_ended(objects, whose, late_ms, does_it):
    """The holder confirms, is late or not, is asked about, and confirms again; each call fails once."""
    for number in itertools.count(1):
        objects.content.clear()
        objects.facts.clear()
        holder = MemoryStore(objects, number if whose == "holder" else None, does_it=does_it)
        asker = MemoryStore(objects, number if whose == "asker" else None, does_it=does_it)
        ended = once(holder, asker, objects, late_ms)
        if late_ms == 0:
            assert not ended
        if max(holder.calls, asker.calls) < number:
            break
    assert number >= 5


def once(holder, asker, objects, late_ms):
    ended = frozenset()
    with suppress(StoreError), TimedLeases(holder, Clock()).hold("op") as held:
        may_commit(held)
        objects.pass_ms(late_ms)
        with suppress(StoreError):
            ended = TimedLeases(asker, Clock()).ask(dry_run=False).ended
        assert not (ended and may_commit(held))
    return ended


def may_commit(held):
    try:
        held.confirm()
    except LeaseLostError:
        return False
    return True


class Log:
    """A table's log: a commit makes exactly one version, or nothing."""

    def __init__(self):
        self.commits = []

    def put(self, version, files):
        if version != len(self.commits):
            return False
        self.commits.append(files)
        return True


def holding(held, log, files):
    """The steps of an operation that commits its file: each `yield` is a place where it may be stopped."""
    while True:
        version = len(log.commits)
        yield
        if not may_commit(held):
            return
        yield
        if log.put(version, ["file"]):
            files["committed"] = True
            return
        yield


def vacuuming(asked, log, files, fences):
    """The steps of a vacuum."""
    yield
    ended = asked.ask(dry_run=False).ended
    yield
    while fences and ended and not log.put(len(log.commits), []):
        yield
    yield
    named = [name for commit in log.commits for name in commit]
    if ended and not named:
        files["removed"] = True


def passing(objects):
    """So much time that a lease expires, once."""
    objects.pass_ms(LEASE_MS + 1)
    yield


def interleaved(order, fences=True):
    """What became of the file where they take turns in this order."""
    objects, log, files = Objects(), Log(), {"committed": False, "removed": False}
    with leases(objects).hold("op") as held:
        turns = {
            "holder": holding(held, log, files),
            "vacuum": vacuuming(leases(objects), log, files, fences),
            "time": passing(objects),
        }
        for who in [*order, *["vacuum"] * 9, *["holder"] * 9]:
            next(turns[who], None)
    return files


ORDERS = list(itertools.product(["holder", "vacuum", "time"], repeat=7))


def test_in_no_order_of_steps_is_a_committed_file_removed():
    outcomes = [tuple(interleaved(order).values()) for order in ORDERS]
    assert set(outcomes) == {(True, False), (False, True)}  # committed, removed


def test_without_a_fence_one_would_be():
    assert (True, True) in [tuple(interleaved(order, fences=False).values()) for order in ORDERS]
