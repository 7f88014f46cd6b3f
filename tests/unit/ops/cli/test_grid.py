"""A table of any columns and rows at a terminal of any width: each row is a line, and no line is wider."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from millrace_ops.cli.grid import Column, cut, laid_out

TEXTS = st.text(st.sampled_from("ab 東é…│"), max_size=80)
COLUMNS = st.lists(
    st.builds(Column, TEXTS, st.sampled_from(["bigint", "varchar"]), st.booleans()), min_size=1, max_size=14
)


def drawn(columns, rows, width):
    grid = laid_out(columns, rows, width)
    return grid, [*grid.head(), *map(grid.row, rows), *grid.foot(len(rows), len(rows))]


@given(st.data(), COLUMNS, st.integers(5, 300))
def test_no_line_is_wider_than_the_terminal(data, columns, width):
    cells = st.lists(TEXTS, min_size=len(columns), max_size=len(columns))
    rows = data.draw(st.lists(cells, max_size=4))
    grid, lines = drawn(columns, rows, width)
    widths = {*map(cell_len, lines[:-1])}
    assert len(widths) == 1, "the frame is straight"
    assert widths.pop() <= max(width, 13), "one column of one cell, and the one in the place of the others, at least"
    assert len(lines) == 4 + len(rows) + 2
    assert grid.is_whole == (len(grid.columns) == len(columns))


@given(COLUMNS)
def test_nothing_is_cut_or_left_out_where_there_is_room(columns):
    rows = [["x" * 20] * len(columns)]
    grid, lines = drawn(columns, rows, 10_000)
    assert grid.is_whole
    assert lines[4].count("x" * 20) == len(columns)


NAMES = ["order_id", "customer", "coupon", "note", "offset_id", "key", "value", "timestamp", "topic", "partition_id"]
NAMES += ["type", "headers"]
TWELVE = [Column(name, "bigint" if name.endswith("id") else "varchar", name.endswith("id")) for name in NAMES]
NOTE = "a long note that says more than there is room for in any cell at all, really"
ROW = ["4711", "Ann", "SPRING", NOTE, "9", "k", "{...}", "2026-11-29 20:00", "orders", "0", "0", "[]"]
AT_80 = """\
┌──────────┬──────────┬─────────┬────────────────────┬───────────┬─────────┬───┐
│ order_id │ customer │ coupon  │ note               │ offset_id │ key     │ … │
│   bigint │ varchar  │ varchar │ varchar            │    bigint │ varchar │   │
├──────────┼──────────┼─────────┼────────────────────┼───────────┼─────────┼───┤
│     4711 │ Ann      │ SPRING  │ a long note that … │         9 │ k       │ … │
└──────────┴──────────┴─────────┴────────────────────┴───────────┴─────────┴───┘
  1 row, 12 columns (6 shown)
"""


def test_twelve_columns_at_80():
    _, lines = drawn(TWELVE, [ROW], 80)
    assert "\n".join(lines) == AT_80.rstrip()


@pytest.mark.parametrize(("width", "shown"), [(40, 3), (200, 12)])
def test_more_columns_find_room_at_wider_terminals(width, shown):
    grid, _ = drawn(TWELVE, [ROW], width)
    assert len(grid.columns) == shown


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abc", 5, "abc  "),
        ("abcd", 3, "ab…"),
        ("東京都", 4, "東 …"),
        ("東京", 1, "…"),
        ("", 2, "  "),
    ],
)
def test_a_text_takes_exactly_the_room_that_it_has(text, width, shown):
    assert cut(text, width) == shown
    assert cell_len(shown) == width
