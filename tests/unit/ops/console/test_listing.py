"""Pages of long lists: filtered, sorted, cut into pages, and linked."""

from urllib.parse import parse_qs

import pytest

from millrace_ops.console.request import ROWS_ON_A_PAGE, listed

ROWS = [(f"topic-{number}", number % 7) for number in range(2 * ROWS_ON_A_PAGE + 1)]
COLUMNS = {"name": lambda row: row[0], "size": lambda row: (row[1], row[0])}


def page(query, rows=ROWS, default=None):
    return listed(rows, query, COLUMNS, lambda row: row[0], default)


def fields(link):
    return {name: values for name, [values] in parse_qs(link.removeprefix("?")).items()}


def test_the_first_column_sorts_and_the_rest_is_on_further_pages():
    first, last = page({}), page({"page": "3"})
    assert [row[0] for row in first.rows] == sorted(row[0] for row in ROWS)[:ROWS_ON_A_PAGE]
    assert (first.page, first.pages, first.found, first.total) == (1, 3, len(ROWS), len(ROWS))
    assert [row[0] for row in last.rows] == [max(row[0] for row in ROWS)]


def test_a_filter_finds_in_any_case_and_says_how_many_there_are():
    found = page({"filter": " TOPIC-10 "})
    assert [row[0] for row in found.rows] == ["topic-10", "topic-100"]
    assert (found.found, found.total) == (2, len(ROWS))


def test_columns_sort_both_ways():
    assert page({"sort": "size", "order": "desc"}).rows[0][1] == 6
    assert page({"sort": "size"}).rows[0][1] == 0
    assert page({}, default=("size", "desc")).rows[0][1] == 6


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "9" * 30, "٣"])
def test_a_page_that_makes_no_sense_is_one_that_there_is(text):
    assert 1 <= page({"page": text}).page <= 3


@pytest.mark.parametrize("query", [{"sort": "<script>"}, {"order": "sideways"}])
def test_an_unknown_order_is_the_default(query):
    assert page(query).rows == page({}).rows


def test_links_keep_what_the_address_says_and_escape_it():
    found = page({"filter": "topic&page=9", "id": "a b", "page": "2"}, rows=[("topic&page=9", 1)])
    assert fields(found.page_link(2)) == {
        "filter": "topic&page=9",
        "id": "a b",
        "sort": "name",
        "order": "asc",
        "page": "2",
    }
    assert fields(found.sort_link("name"))["order"] == "desc"
    assert fields(found.sort_link("size"))["order"] == "asc"


def test_nothing_is_one_empty_page():
    assert (page({}, rows=[]).pages, page({}, rows=[]).rows) == (1, [])
