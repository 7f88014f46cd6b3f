"""Decisions of upsert, reload and compaction, and what the history remembers of erased keys."""

import threading

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from millrace.errors import BrokerUnreachableError
from millrace_ops.cli.app import app
from millrace_ops.cli.warehouse_modes import KeyFormat, key_bytes, time_ms
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.spark.read import LogOffsets
from millrace_pipelines.warehouse.delta.rewrite import CurrentFile
from millrace_pipelines.warehouse.errors import LoadFailedError, ModeError, SchemaError, TableNotFoundError
from millrace_pipelines.warehouse.keys.erased import ErasedKeys
from millrace_pipelines.warehouse.keys.newest import PLACE_SCHEMA, contest, newest_of_each_key
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange
from millrace_pipelines.warehouse.ledger.plan_reload import RequestedRange, plan_reload
from millrace_pipelines.warehouse.load.continuous import load_continuously
from millrace_pipelines.warehouse.load.report import LoadReport
from millrace_pipelines.warehouse.upkeep.compact import plan_compaction


def places(*rows):
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, PLACE_SCHEMA, strict=True)],
                    schema=PLACE_SCHEMA)  # fmt: skip


def test_within_a_partition_the_higher_offset_is_newer_whatever_its_timestamp():
    rows = places((b"a", 0, 7, 100), (b"b", 0, 8, 5), (b"a", 0, 9, 1), (b"a", 0, 3, 200))
    assert newest_of_each_key(rows).tolist() == [1, 2]
    assert newest_of_each_key(places()).tolist() == []


def test_between_partitions_the_later_timestamp_is_newer_then_the_higher_partition():
    rows = places((b"a", 0, 9, 9), (b"a", 0, 10, 4), (b"a", 1, 1, 5), (b"b", 0, 1, 3), (b"b", 2, 0, 3), (b"c", 1, 2, 0))
    assert newest_of_each_key(rows).tolist() == [2, 4, 5]


def test_rows_of_a_table_are_held_against_places():
    table = places((b"a", 0, 5, 1), (b"b", 0, 6, 1), (b"c", 0, 7, 9), (b"d", 0, 8, 1))
    load = places((b"c", 1, 1, 8), (b"b", 0, 4, 99), (b"a", 0, 6, 0), (b"e", 0, 9, 0))
    beaten_rows, beating_places, beaten_places = (numbers.tolist() for numbers in contest(table, load))
    assert (beaten_rows, beating_places, sorted(beaten_places)) == ([0], [2], [0, 1])


LEDGER = Ledger("events", "id", {0: LedgerEntry(100, 200)})


def plan(requested, start=0, end=300, ledger=LEDGER, **how):
    return plan_reload(ledger, {0: LogOffsets(start, end)}, {0: requested}, **how)


def test_a_reload_is_cut_where_the_table_begins_and_ends():
    made = plan(RequestedRange(50, None))
    assert made.backfill == (OffsetRange(0, 50, 100),)
    assert made.replaced == (OffsetRange(0, 100, 200),)
    assert made.following == {0: LedgerEntry(50, 200)}
    assert plan(RequestedRange(150, 180)).ranges == (OffsetRange(0, 150, 180),)
    assert plan(RequestedRange(250, None)).ranges == ()
    assert plan(RequestedRange(None, 100)).backfill == (OffsetRange(0, 0, 100),)


def test_a_new_table_begins_with_the_range_and_others_where_their_logs_do():
    log = {0: LogOffsets(5, 50), 1: LogOffsets(7, 70)}
    made = plan_reload(Ledger("events", "id", {}), log, {1: RequestedRange(20, 30)})
    assert made.backfill == (OffsetRange(1, 20, 30),)
    assert made.following == {0: LedgerEntry(5, 5), 1: LedgerEntry(20, 30)}


def test_what_can_t_be_reloaded_is_said():
    with pytest.raises(OffsetsLostError, match="partition 0: 90-119"):
        plan(RequestedRange(90, 150), start=120)
    made = plan(RequestedRange(90, 150), start=120, accept_lost_offsets=True)
    assert (made.ranges, made.backfill) == ((OffsetRange(0, 120, 150),), ())
    assert made.lost == (LostRange(0, 90, 120, "retention"),)
    with pytest.raises(ModeError, match="begins at offset 100, the range ends at 90"):
        plan(RequestedRange(50, 90))
    with pytest.raises(ModeError, match="no partition 3"):
        plan_reload(LEDGER, {0: LogOffsets(0, 300)}, {3: RequestedRange(None, None)})


def file(name, size_bytes, offset=0, **values):
    return CurrentFile(name=name, size_bytes=size_bytes, rows=1, offsets=(offset, offset), partitions=(0, 0),
                       partition_values=values)  # fmt: skip


def test_small_files_are_binned_in_order_and_good_ones_left():
    files = [
        file("big", 80),
        file("c", 40, 30),
        file("a", 40, 10),
        file("b", 20, 20),
        file("d", 30, 40),
        file("e", 9, 50),
    ]
    assert [[one.name for one in group] for group in plan_compaction(files, 100)] == [["a", "b", "c"], ["d", "e"]]
    assert plan_compaction([file("a", 10), file("big", 90)], 100) == []


def test_files_of_other_partition_values_never_meet():
    files = [file("a", 1, 1, day="1"), file("b", 1, 2, day="2"), file("c", 1, 3, day="1"), file("n", 1, 4, day=None),
             file("m", 1, 5, day=None)]  # fmt: skip
    assert [[one.name for one in group] for group in plan_compaction(files, 100)] == [["n", "m"], ["a", "c"]]


def test_an_erased_key_is_known_again_and_not_told():
    first = ErasedKeys.of([])
    entry = {"kind": "erase", "salt": first.salt.hex(), "keys": [first.hash_of(b"alice")], "below": {"0": 10}}
    known = ErasedKeys.of([entry, {"kind": "load"}, {**entry, "below": {"1": 5}}])
    rows = pa.table({"key": [b"alice", b"alice", b"bob", None, b"alice"], "partition": [0, 0, 0, 0, 1],
                     "offset": [9, 10, 1, 2, 4]})  # fmt: skip
    assert known.is_erased(rows).tolist() == [True, False, False, False, True]
    assert "alice" not in str(entry)
    assert ErasedKeys.of([]).hash_of(b"alice") != first.hash_of(b"alice")


def test_keys_and_times_as_users_write_them():
    assert key_bytes("ä", KeyFormat.TEXT) == "ä".encode()
    assert key_bytes("\udcff", KeyFormat.TEXT) == b"\xff"  # as Python has an argument's byte that is no UTF-8
    assert key_bytes("00ff", KeyFormat.HEX) == key_bytes("AP8=", KeyFormat.BASE64) == b"\x00\xff"
    for text, key_format in (("0", KeyFormat.HEX), ("?", KeyFormat.BASE64)):
        with pytest.raises(typer.BadParameter, match="is not"):
            key_bytes(text, key_format)
    assert time_ms("2013-01-01T05:00:00") == time_ms("2013-01-01T06:00:00+01:00") == 1_357_016_400_000
    with pytest.raises(typer.BadParameter, match="ISO 8601"):
        time_ms("yesterday")


def test_keys_of_a_file_are_the_bytes_of_its_lines(tmp_path, monkeypatch):
    erased = []

    def erase(_directory, keys, _fs):
        erased.extend(keys)
        raise TableNotFoundError("enough")

    monkeypatch.setattr("millrace_pipelines.warehouse.keys.erase.erase", erase)
    file = tmp_path / "keys"
    file.write_bytes(b"alice\r\n\xff\xfe\n\na\rb\x85c")
    CliRunner().invoke(app, ["warehouse", "erase", str(tmp_path), "--keys-file", str(file)])
    assert erased == [b"alice", b"\xff\xfe", b"a\rb\x85c"]


class Loop:
    """Plays loads that fail or succeed, and stops after the last."""

    def __init__(self, *outcomes):
        self.outcomes, self.stop, self.told = list(outcomes), threading.Event(), []

    def load(self):
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        return LoadReport(topic="t", table="d", lag={0: outcome})

    def loaded(self, report):
        self.told.append(report.lag[0])

    def failed(self, failure):
        self.told.append((type(failure.error).__name__, failure.attempt))

    def run(self, monkeypatch, **how):
        monkeypatch.setattr("millrace_pipelines.warehouse.load.continuous.MAX_PAUSE_S", 0.0)
        load_continuously(self.load, self.stop, self, interval_s=0, **how)
        return self.told


def test_a_loop_retries_what_may_pass_and_counts_anew_after_a_success(monkeypatch):
    loop = Loop(5, BrokerUnreachableError("gone"), LoadFailedError("task"), 3, LoadFailedError("task"), 0)
    assert loop.run(monkeypatch, attempts=3) == [
        5, ("BrokerUnreachableError", 1), ("LoadFailedError", 2), 3, ("LoadFailedError", 1), 0
    ]  # fmt: skip


def test_a_loop_ends_with_what_does_not_pass(monkeypatch):
    with pytest.raises(SchemaError):
        Loop(1, SchemaError("other"), 2).run(monkeypatch)
    with pytest.raises(LoadFailedError):
        Loop(*[LoadFailedError("task")] * 3, 2).run(monkeypatch, attempts=3)
    assert Loop(1, LoadFailedError("while it was told to stop")).run(monkeypatch) == [1]
