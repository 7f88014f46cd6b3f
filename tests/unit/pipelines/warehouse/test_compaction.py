"""Which small files compaction puts together."""

import json
from pathlib import Path

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.maintenance import compact, plan_compaction
from millrace_pipelines.warehouse.rewrite import CurrentFile
from millrace_support.loads import Loads


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


def test_files_of_which_the_log_has_no_statistics_are_compacted(tmp_path):
    """A checkpoint may be without them (`delta.checkpoint.writeStatsAsJson`); then the footers count the rows."""
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 3), [0, 1, 2])
    loads.load((3, 6), [3, 4, 5])
    for commit in Path(loads.directory, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    report = compact(loads.directory, OsFileSystem(), SystemClock())
    assert (report.files_before, report.files_after, report.rows) == (2, 1, 6)
