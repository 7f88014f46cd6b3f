"""The benchmark of many small tables in its shortest form: every figure is measured."""

from millrace_benchmarks import tables


def test_small_tables_are_measured_together_and_one_by_one(tmp_path):
    figures = tables.run(tmp_path, tables=3, rounds=1)
    assert [figure.value > 0 for figure in figures] == [True] * 4
    assert figures[1].yardstick_value > 0
