"""The pages of DescribeTopicPartitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_broker.handlers.cluster_descriptions import Cursor, Page, paged

TOPICS = [("a", 2), ("b", 0), ("c", 3)]


@pytest.mark.parametrize(
    ("cursor", "limit", "page"),
    [
        (None, 9, Page([("a", 0, 2), ("b", 0, 0), ("c", 0, 3)], None)),
        (None, 1, Page([("a", 0, 1)], Cursor("a", 1))),
        (None, 2, Page([("a", 0, 2)], Cursor("b", 0))),
        (None, 4, Page([("a", 0, 2), ("b", 0, 0), ("c", 0, 2)], Cursor("c", 2))),
        (Cursor("a", 1), 9, Page([("a", 1, 2), ("b", 0, 0), ("c", 0, 3)], None)),
    ],
)
def test_a_page(cursor, limit, page):
    assert paged(TOPICS, cursor, limit) == page


@given(st.lists(st.integers(1, 7), min_size=1, max_size=8), st.integers(1, 10))
def test_pages_one_after_the_other_are_everything_once(counts, limit):
    topics = [(f"t{index}", count) for index, count in enumerate(counts)]
    found, cursor = [], None
    while True:
        rest = topics if cursor is None else [topic for topic in topics if topic[0] >= cursor.topic]
        page = paged(rest, cursor, limit)
        places = [(name, index) for name, first, end in page.topics for index in range(first, end)]
        assert len(places) <= limit
        found += places
        cursor = page.next
        if cursor is None:
            break
    assert found == [(name, index) for name, count in topics for index in range(count)]
