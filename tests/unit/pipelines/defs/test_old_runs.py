"""Which runs go."""

from millrace_pipelines.defs.old_runs import old_runs


def test_the_oldest_go_first_and_needed_ones_stay():
    newest_first = ["e", "d", "c", "b", "a"]
    assert old_runs(newest_first, set(), 2) == ["a", "b", "c"]
    assert old_runs(newest_first, {"b", "d"}, 2) == ["a", "c"]
    assert old_runs(newest_first, set(), 5) == old_runs(newest_first, set(), 9) == []
