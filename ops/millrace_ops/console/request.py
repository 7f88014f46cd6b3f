"""A request for a page, what a page answers, and the page of a long list that a request asks for.

A page answers with a template and its values, or with another address. A long list is filtered by a text, sorted by a
column, and linked to its other pages: the query of the address chooses the page by `filter`, `sort` (a column's name),
`order` (asc or desc) and `page`, from 1 on. The default replaces a value that makes no sense, since addresses are typed
and shortened by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidRequestError
from millrace.times import epoch_ms, parse_time


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a browser: its path, query and form fields, and the token that forms on the page must send back.

    `own_troubles` say what is wrong with the broker that serves the console; None if the broker has not reported it.
    """

    path: str
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    form_token: str = ""
    own_troubles: Sequence[str] | None = None

    def need(self, name: str) -> str:
        """Returns a field of the request's query; raises InvalidRequestError where it is missing."""
        if not self.query.get(name):
            raise InvalidRequestError(f"the address lacks {name}=…")
        return self.query[name]


class Page(NamedTuple):
    """The response to a request: a template's name and its values; the browser reloads it after `refresh_s`."""

    template: str
    values: Mapping[str, object]
    status: int = 200
    refresh_s: int | None = None


class Redirect(NamedTuple):
    """A response that sends the browser to another path below the console."""

    to: str


class Download(NamedTuple):
    """A response that is a file with a name, sent as its parts are made, so that nobody has all of it in memory."""

    name: str
    parts: Iterator[bytes]


Answer = Page | Redirect | Download


def time_ms(text: str) -> int:
    """Returns an ISO 8601 time, UTC unless it says otherwise, as ms since 1970; raises InvalidRequestError."""
    try:
        return epoch_ms(parse_time(text.strip()))
    except ValueError:
        raise InvalidRequestError(f"{text!r} is no time: expected one like 2026-07-01T12:00") from None


Row = TypeVar("Row")
ROWS_ON_A_PAGE = 50
DESCENDING, ASCENDING = "desc", "asc"
Key = Callable[[Row], Any]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """One page of a list of rows, and the values for its links.

    Attributes:
        rows: The rows of this page.
        total: The number of all rows.
        found: The number of rows that the filter lets through.
        page: The number of this page, from 1 on.
        pages: The number of pages.
        sort: The name of the column by which the rows are sorted.
        order: The order of the rows, asc or desc.
        query: The fields of the address's query without `page`, `sort` and `order`.
    """

    rows: Sequence[Row]
    total: int
    found: int
    page: int
    pages: int
    sort: str
    order: str
    query: Mapping[str, str]

    @property
    def first(self) -> int:
        """Returns the number of the first row on this page, from 1 on."""
        return (self.page - 1) * ROWS_ON_A_PAGE + 1

    def page_link(self, page: int) -> str:
        """Returns the query string of another page of the list."""
        return self._link({"page": str(page)})

    def sort_link(self, column: str) -> str:
        """Returns the query string that sorts by a column: descending if the list is in ascending order of it now."""
        order = DESCENDING if column == self.sort and self.order == ASCENDING else ASCENDING
        return self._link({"sort": column, "order": order, "page": "1"})

    def _link(self, changed: Mapping[str, str]) -> str:
        fields = {**self.query, "sort": self.sort, "order": self.order, **changed}
        return "?" + urlencode({name: value for name, value in fields.items() if value})


def listed(
    rows: Sequence[Row],
    query: Mapping[str, str],
    columns: Mapping[str, Key[Row]],
    text: Callable[[Row], str],
    default: tuple[str, str] | None = None,
) -> Listing[Row]:
    """Returns the page of a list that the query asks for.

    Args:
        rows: All rows.
        query: The fields of the address's query.
        columns: The sort key of each column that can be sorted by, by the column's name; the first is the default.
        text: Returns the text of a row in which the filter is searched; upper and lower case are the same.
        default: The column and the order of a query that names none.
    """
    wanted = query.get("filter", "").strip().lower()
    found = [row for row in rows if wanted in text(row).lower()] if wanted else list(rows)
    default_sort, default_order = default or (next(iter(columns)), ASCENDING)
    sort = query.get("sort", "") if query.get("sort") in columns else default_sort
    order = query.get("order", "") if query.get("order") in (ASCENDING, DESCENDING) else default_order
    found.sort(key=columns[sort], reverse=order == DESCENDING)
    pages = max(1, -(-len(found) // ROWS_ON_A_PAGE))
    page = min(max(1, whole_number(query.get("page", ""), MAX_INT) or 1), pages)
    start = (page - 1) * ROWS_ON_A_PAGE
    kept = {name: value for name, value in query.items() if name not in ("page", "sort", "order")}
    return Listing(found[start : start + ROWS_ON_A_PAGE], len(rows), len(found), page, pages, sort, order, kept)
