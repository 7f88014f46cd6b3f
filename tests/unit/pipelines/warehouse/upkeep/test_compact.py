"""Which small files compaction puts together."""

from millrace_pipelines.warehouse.delta.rewrite import CurrentFile
from millrace_pipelines.warehouse.upkeep.compact import plan_compaction


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
