"""The links from a page of records to those before and after them."""

from urllib.parse import parse_qs

import pytest

from millrace.client import LogOffsets
from millrace_ops.console.pages.messages import NEWEST, SCANNED_RECORDS, Read, RecordQuery, Scanned, _links
from millrace_ops.console.request import Asked

LOG = LogOffsets(100, 200_000)


def linked(start, after, **query):
    """Where the links lead: (older, newer), None where there is no link."""
    wanted = RecordQuery("t", [0], NEWEST, limit=20)
    read = Read(Scanned([], {0: after}, 0), {0: LOG}, {0: start})
    links = _links(Asked("messages", {"topic": "t", **query}), wanted, read)
    return tuple(value_of(links[name]) for name in ("older", "newer"))


def value_of(link):
    if not link:
        return None
    fields = parse_qs(link.removeprefix("?"))
    assert (fields["topic"], fields["position"]) == (["t"], ["offset"])
    return int(fields["value"][0])


@pytest.mark.parametrize(
    ("start", "after", "links"),
    [
        (199_980, 200_000, (199_960, None)),
        (110, 130, (100, 130)),
        (100, 120, (None, 120)),
        (100, 200_000, (None, None)),
    ],
)
def test_they_lead_a_page_back_and_on_inside_the_log(start, after, links):
    assert linked(start, after) == links


def test_a_search_goes_back_by_what_it_looks_at():
    assert linked(150_000, 200_000, search="x") == (150_000 - SCANNED_RECORDS, None)


def test_several_partitions_have_no_pages():
    wanted = RecordQuery("t", [0, 1])
    assert _links(Asked("messages", {}), wanted, Read(Scanned([], {}, 0), {}, {})) == {"older": "", "newer": ""}
