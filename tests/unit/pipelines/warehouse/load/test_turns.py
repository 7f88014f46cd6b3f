"""Whose turn it is among many tables: how long each waits, and what a failure of one costs the others."""

from threading import Event

import pytest

from millrace.errors import BrokerUnreachableError, UnknownTopicError
from millrace_pipelines.warehouse.errors import LoadFailedError
from millrace_pipelines.warehouse.load import turns
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.load.turns import MAX_PAUSE_MS, TURN_OFFSETS, Turns, load_in_turns

INTERVAL_MS = 10_000


def table(name, **options):
    return LoadOptions(topic=name, table=name, bootstrap="nowhere:1", **options)


def report(name, lag=0):
    return LoadReport(topic=name, table=name, lag={0: lag})


def names(some):
    return [one.table for one in some]


def test_the_longest_due_comes_first_and_a_backlog_goes_behind_the_others():
    tables, order = [table(name) for name in "abc"], Turns(INTERVAL_MS)
    assert names(order.due(tables, 0)) == ["a", "b", "c"]
    order.loaded(report("a", lag=7), 5)
    order.loaded(report("b"), 6)
    order.loaded(report("c"), 4)
    assert names(order.due(tables, 7)) == ["a"]
    assert names(order.due(tables, 6 + INTERVAL_MS)) == ["a", "c", "b"]


def test_a_turn_is_bounded_unless_the_table_has_its_own_bound():
    tables = [table("a"), table("b", max_records_per_run=5)]
    assert [one.max_records_per_run for one in Turns(1).due(tables, 0)] == [TURN_OFFSETS, 5]


def test_so_many_tables_are_loaded_at_once_and_the_next_ones_then(monkeypatch):
    monkeypatch.setattr(turns, "MOST_TOGETHER", 2)
    tables, order = [table(name) for name in "abcde"], Turns(INTERVAL_MS)
    seen = []
    for now_ms in range(3):
        due = names(order.due(tables, now_ms))
        seen.append(due)
        for name in due:
            order.loaded(report(name), now_ms)
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


def test_pauses_grow_with_each_failure_in_a_row_and_are_its_tables_alone():
    tables, order = [table("a"), table("b")], Turns(INTERVAL_MS)
    order.due(tables, 0)
    pauses = [order.failed(tables[0], UnknownTopicError("a"), 0).pause_ms for _ in range(1_100)]
    assert (pauses[:4], pauses[-1]) == ([1_000, 2_000, 4_000, 8_000], MAX_PAUSE_MS)
    assert names(order.due(tables, 1)) == ["b"]
    order.loaded(report("a"), 0)
    assert order.failed(tables[0], UnknownTopicError("a"), 0).attempt == 1


def test_the_loop_waits_until_the_next_is_due_but_no_longer_than_the_interval():
    tables, order = [table("a"), table("b")], Turns(INTERVAL_MS)
    order.due(tables, 0)
    order.loaded(report("b"), 0)
    order.failed(tables[0], UnknownTopicError("a"), 0)
    assert (order.pause_ms(tables, 400), order.pause_ms(tables, 5_000), order.pause_ms([], 0)) == (600, 0, INTERVAL_MS)


class Loop:
    """A loop of tables whose loads are played, on a clock that only `stop.wait` moves."""

    def __init__(self, rounds):
        self.rounds, self.told, self.now_ms, self.waited = list(rounds), [], 0, []

    def monotonic_ms(self):
        return self.now_ms

    def is_set(self):
        return not self.rounds

    def wait(self, seconds):
        self.waited.append(seconds)
        self.now_ms += round(seconds * 1_000)

    def tables(self):
        self.there, self.outcomes = self.rounds.pop(0)
        if isinstance(self.there, Exception):
            raise self.there
        return [table(name) for name in self.there]

    def load(self, some):
        for one in some:
            yield one, self.outcomes.get(one.table, report(one.table))

    def loaded(self, found):
        self.told.append(found.table)

    def failed(self, failed):
        self.told.append((failed.options.table, type(failed.error).__name__, failed.attempt))

    def not_asked(self, error):
        self.told.append(str(error))


def test_one_that_fails_stops_no_other_and_tables_come_and_stay_known():
    loop = Loop(
        [
            ("ab", {"a": UnknownTopicError("gone")}),
            ("abc", {"a": LoadFailedError("task")}),
            (BrokerUnreachableError("nobody answers"), {}),
        ]
    )
    load_in_turns(loop.tables, loop.load, loop, loop, loop, interval_s=1)
    assert loop.told[:5] == [("a", "UnknownTopicError", 1), "b", ("a", "LoadFailedError", 2), "b", "c"]
    assert loop.told[5] == "nobody answers"
    assert sorted(loop.told[6:]) == ["b", "c"]
    assert loop.waited == [1.0, 1.0, 1.0]


def test_the_loop_ends_where_the_jvm_has(monkeypatch):
    monkeypatch.setattr(turns, "jvm_status", lambda: -9)
    with pytest.raises(LoadFailedError, match="JVM has ended"):
        load_in_turns(list, lambda _: (), Event(), Loop([]), Loop([]), interval_s=1)
