"""The plan of an upsert on paper: its parts, and what must hold of it whatever the rates are."""

from dataclasses import replace

import pytest

from millrace_benchmarks.upsert_plan import CASES, Case, Rates, cost_of, hit_boxes, makespan


def test_boxes_are_hit_as_balls_are_thrown():
    assert hit_boxes(1, 10) == pytest.approx(1)
    assert hit_boxes(2, 2) == pytest.approx(1.5)
    assert hit_boxes(1e6, 10) == pytest.approx(10)
    assert (hit_boxes(0, 10), hit_boxes(5, 1)) == (0, 1)


def test_a_piece_goes_where_it_begins_first():
    assert makespan([3, 1, 1, 1, 4], 2) == 7
    assert makespan([], 2) == 0


def test_a_recent_change_touches_the_newest_files_alone():
    case = Case(1_000_000_000, 5_000_000, is_recent=True)
    assert cost_of(case, Rates()).touched_files == 1
    assert cost_of(replace(case, is_recent=False), Rates()).touched_files == case.files


@pytest.mark.parametrize("case", CASES, ids=str)
def test_more_executors_are_faster_and_vectors_write_less(case):
    cost, rates = cost_of(case, Rates()), Rates()
    assert cost_of(replace(case, executors=case.executors * 2), rates).seconds <= cost.seconds
    by_vectors, again = (cost_of(replace(case, by_vectors=one), rates) for one in (True, False))
    assert by_vectors.written_bytes <= again.written_bytes


def test_the_driver_has_no_more_of_a_larger_table():
    case = Case(1_000_000_000, 1_000_000)
    large = cost_of(replace(case, keys=100 * case.keys), Rates())
    assert large.driver_bytes < 2 * cost_of(case, Rates()).driver_bytes + 100 * case.files * 2_000
    assert large.driver_bytes < 1 << 30
