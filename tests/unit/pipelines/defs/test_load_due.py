"""When a load is due, how far a table lags, and which loads one tick requests."""

import shutil

import pytest

from millrace.client import LogOffsets
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.defs.load_due import (
    LagStatus,
    LedgerReader,
    decide_loads,
    lag_report,
    lag_status,
    lag_summary,
    lags_of,
)
from millrace_pipelines.defs.ticks import pack_cursor
from millrace_pipelines.defs.topic_sensor import TopicOffsets
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import (
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    Ledger,
    LedgerEntry,
    ledger_of,
    swap,
)

UP_TO_DATE = LagStatus(0, is_due=False)


def topic(*logs, topic_id="id"):
    return TopicOffsets("events", topic_id, {index: LogOffsets(*offsets) for index, offsets in enumerate(logs)})


def ledger(next_offsets):
    return Ledger("events", "id", {one: LedgerEntry(0, offset) for one, offset in next_offsets.items()})


@pytest.mark.parametrize(
    ("next_offsets", "expected"),
    [
        ({}, LagStatus(7, is_due=True)),
        ({0: 5, 1: 9}, LagStatus(1, is_due=True)),
        ({0: 5, 1: 10}, UP_TO_DATE),
        ({1: 10}, UP_TO_DATE),  # partition 0 is empty: retention took its records
        ({0: 2, 1: 10}, LagStatus(0, is_due=True)),  # retention took offsets 2 to 4, which the load has to say
        ({0: 5, 1: 1}, LagStatus(7, is_due=True)),
        ({0: 5, 1: 11}, LagStatus(None, is_due=True)),
        ({0: 5, 1: 10, 2: 0}, LagStatus(None, is_due=True)),
    ],
)
def test_a_table_stands_to_its_topic(next_offsets, expected):
    assert lag_status(topic((5, 5), (3, 10)), ledger(next_offsets)) == expected


def test_a_topic_without_a_table_is_due_once_it_has_records():
    assert lag_status(topic((0, 0), (4, 4)), None) == UP_TO_DATE
    assert lag_status(topic((0, 0), (4, 6)), None) == LagStatus(2, is_due=True)


def test_a_load_has_something_to_say_of_another_topic_and_of_a_damaged_table():
    assert lag_status(topic((0, 5), topic_id="created again"), ledger({0: 5})) == LagStatus(None, is_due=True)
    assert lag_status(topic((0, 5), topic_id=""), ledger({0: 5})) == UP_TO_DATE  # Kafka before 2.8 tells no id
    assert lag_status(topic((0, 5)), WarehouseError("damaged")) == LagStatus(None, is_due=True)


def test_an_open_transaction_is_neither_lag_nor_a_cut_log():
    assert lag_status(topic((0, 5, 9)), ledger({0: 5})) == UP_TO_DATE
    assert lag_status(topic((0, 5, 9)), ledger({0: 7})) == UP_TO_DATE  # loaded with read_uncommitted before
    assert lag_status(topic((0, 5, 9)), ledger({0: 10})) == LagStatus(None, is_due=True)


def test_each_topic_is_in_one_place():
    due = LagStatus(1, is_due=True)
    decision = decide_loads(
        {"a": UP_TO_DATE, "b": due, "c": due, "d": due, "e": UP_TO_DATE, "f": due},
        under_way={"b", "d", "e"},
        failed_lately={"c", "d"},
    )
    assert decision == (["f"], ["a", "e"], ["b", "d"], ["c"], [])
    assert decision.summary == (
        "6 topics: 1 requested, 2 up to date, 2 with a load that waits or runs, 1 with a load that failed lately"
    )
    assert decide_loads({}, under_way=(), failed_lately=()).summary == "0 topics"


def test_a_tick_requests_a_bounded_number_of_loads_those_with_the_largest_lag_first():
    statuses = {f"topic-{lag}": LagStatus(lag, is_due=True) for lag in range(50)} | {
        "cut": LagStatus(None, is_due=True)
    }
    decision = decide_loads(statuses, under_way=(), failed_lately=(), limit=3)
    assert decision.requested == ["topic-49", "topic-48", "topic-47"]
    assert (len(decision.postponed), decision.postponed[-1]) == (48, "topic-0")


def test_one_damaged_table_stops_no_other_topic():
    decision = decide_loads(
        {"damaged": LagStatus(None, is_due=True), "other": LagStatus(3, is_due=True)}, under_way=(), failed_lately=()
    )
    assert decision.requested == ["other", "damaged"]


def test_a_lag_is_reported_while_there_is_one_and_once_it_is_gone():
    first = lag_report({}, {"a": 0, "b": 5, "c": None})
    assert first == ({"b": 5}, {"b": 5})
    second = lag_report(first.seen, {"a": 0, "b": 5, "c": 0})
    assert second == ({"b": 5}, {"b": 5})
    third = lag_report(second.seen, {"a": 0, "b": 0, "c": 0})
    assert third == ({"b": 0}, {})
    assert lag_report(third.seen, {"a": 0, "b": 0, "c": 0}) == ({}, {})


def test_a_look_at_lags_says_what_it_found():
    assert lag_summary({}) == "0 tables, none behind"
    assert lag_summary({"a": 0, "b": 5}) == "2 tables, 1 behind"
    assert lag_summary({"a": None}) == "1 table, none behind, 1 whose load has an error to report"


def test_a_lag_that_can_not_be_told_stays_as_it_was_seen_and_a_table_that_is_gone_is_forgotten():
    assert lag_report({"a": 5, "gone": 7}, {"a": None}) == ({}, {"a": 5})
    assert lag_report({"a": 5}, {"a": 0}) == ({"a": 0}, {})


@pytest.mark.parametrize("cursor", [None, "nonsense", '{"a": 1}', pack_cursor([1]), pack_cursor({"a": "1"})])
def test_garbage_in_a_cursor_of_lags_is_no_lag(cursor):
    assert lags_of(cursor) == {}
    assert lags_of(pack_cursor({"a": 5})) == {"a": 5}


def commit(location, next_offset):
    properties = {TOPIC_PROPERTY: "events", TOPIC_ID_PROPERTY: "id"}
    table = Table.load_or_create(
        location, OsFileSystem(), schema=ENVELOPE_SCHEMA, name="events", configuration=properties
    )
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, next_offset)})
    table.commit([], expected=expected, transactions=transactions, lineage={})


def test_what_a_table_says(tmp_path):
    ledgers, location = LedgerReader(), str(tmp_path / "events")
    assert ledgers.read(location) is None
    commit(location, 5)
    assert ledgers.read(location).partitions == {0: LedgerEntry(0, 5)}
    newest = max((tmp_path / "events" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])
    assert isinstance(ledgers.read(location), WarehouseError)


def test_a_ledger_is_read_once_for_each_version_of_its_table(tmp_path, monkeypatch):
    ledgers, location, reads = LedgerReader(), str(tmp_path / "events"), []
    monkeypatch.setattr("millrace_pipelines.defs.load_due.ledger_of", lambda table: reads.append(table.version))
    commit(location, 5)
    for _ in range(3):
        ledgers.read(location)
    assert reads == [1]
    commit(location, 7)
    ledgers.read(location)
    assert reads == [1, 2]
    shutil.rmtree(location)
    commit(location, 5)
    commit(location, 7)
    ledgers.read(location)
    assert reads == [1, 2, 2]
