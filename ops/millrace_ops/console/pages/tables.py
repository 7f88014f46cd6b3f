"""Tables of the warehouse: the list, one with its ledger and its commits, its dead letters, and its audit.

What reads tables (pyarrow, deltalake) is loaded with the first of these pages.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import InvalidRequestError, MillraceError, UnknownTopicError
from millrace.extras import require
from millrace_ops.console.console import Console
from millrace_ops.console.overview import Overview, total_lag
from millrace_ops.console.request import Asked, Page, listed
from millrace_ops.record_values.shown import shown

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.ledger.ledger import Ledger
    from millrace_pipelines.warehouse.tables.find import TableFacts

logger = logging.getLogger(__name__)

COMMITS = 20
LETTERS = 20
VALUE_LENGTH = 1_000
AUDIT_REFRESH_S = 2


class TableRow(NamedTuple):
    """A table in the console's list; `trouble` says why the table can't be read."""

    name: str
    facts: TableFacts | None
    lag: int | None
    trouble: str


def show_tables(console: Console, asked: Asked) -> Page:
    """Returns the page of all tables; only the tables that it shows are read."""
    listing = listed(sorted(_locations(console).items()), asked.query, {"name": lambda one: one[0]}, lambda one: one[0])
    overview = console.watch.overview()
    rows = [_row(name, location, overview) for name, location in listing.rows]
    return Page("tables.html", {"listing": listing, "rows": rows, "warehouse": console.settings.warehouse})


def show_table(console: Console, asked: Asked) -> Page:
    """Returns the page of one table."""
    name, location = _named(console, asked)
    from millrace_pipelines.warehouse.formats import load_table  # noqa: PLC0415  # loaded once a page asks
    from millrace_pipelines.warehouse.ledger.ledger import ledger_of  # noqa: PLC0415
    from millrace_pipelines.warehouse.load.history import commits_since  # noqa: PLC0415
    from millrace_pipelines.warehouse.tables.find import describe_table  # noqa: PLC0415

    table = load_table(location, console.fs)
    ledger = ledger_of(table)
    lags = lag_of(ledger, console.watch.overview())
    commits = commits_since(table, max(-1, table.version - COMMITS), COMMITS)
    partitions = listed(
        [(index, entry, None if lags is None else lags.get(index)) for index, entry in ledger.partitions.items()],
        asked.query,
        {"partition": lambda one: one[0], "lag": lambda one: one[2] or 0},
        lambda one: str(one[0]),
    )
    facts = describe_table(location)
    values = {
        "name": name,
        "facts": facts,
        "dagster": console.dagster.links(facts.topic, ("table",)),
        "ledger": ledger,
        "lag": total_lag((lags or {}).values()),
        "listing": partitions,
        "schema": [(field.name, str(field.type)) for field in table.schema],
        "commits": list(reversed(commits)),
        "audit": console.audits.of(location),
    }
    return Page("table.html", values)


def show_dead_letters(console: Console, asked: Asked) -> Page:
    """Returns the page of a table's dead letters: counts by reason, and the first of the chosen ones."""
    name, location = _named(console, asked)
    from millrace_pipelines.warehouse.dead_letters import (  # noqa: PLC0415
        Selection,
        count_reasons,
        each_dead_letter,
    )
    from millrace_pipelines.warehouse.errors import TableNotFoundError  # noqa: PLC0415

    reason = asked.query.get("reason") or None
    try:
        reasons = count_reasons(location, Selection())
        letters = list(islice(each_dead_letter(location, Selection(reason=reason)), LETTERS))
    except TableNotFoundError:  # the table has none
        reasons, letters = [], []
    rows = [(one, shown(one["value"], VALUE_LENGTH, console.decoder)) for one in letters]
    return Page("dead_letters.html", {"name": name, "reasons": reasons, "rows": rows, "reason": reason})


def show_audit(console: Console, asked: Asked) -> Page:
    """Returns the page of a table's audit, and begins an audit if there was none or if another one is asked for.

    The page refreshes itself until the audit has ended.
    """
    name, location = _named(console, asked)
    last = console.audits.of(location)
    if last is None or (asked.query.get("again") and last.ended_ms is not None):
        console.audits.start(location)
    audit = console.audits.of(location)
    is_under_way = audit is not None and audit.ended_ms is None
    values = {"name": name, "audit": audit}
    return Page("audit.html", values, refresh_s=AUDIT_REFRESH_S if is_under_way else None)


def lag_of(ledger: Ledger, overview: Overview) -> Mapping[int, int | None] | None:
    """Returns, by partition, how many offsets a table lacks; None for a partition whose log end offset is not known.

    Returns None if the topic was deleted, or deleted and created again.
    """
    topic = overview.metadata.topics.get(ledger.topic)
    if topic is None or str(topic.topic_id or topic.name) != ledger.topic_id:
        return None
    ends = {index: overview.ends.get((ledger.topic, index)) for index in topic.partitions}
    return {
        index: None if end is None else max(0, end - (ledger.next_offset(index) or 0)) for index, end in ends.items()
    }


def table_locations_by_name(warehouse: str) -> dict[str, str]:
    """Returns the locations of all tables below a folder or a bucket, by their paths from there.

    Raises InvalidRequestError if the folder, or the bucket, can't be listed: it may not exist yet.
    """
    require("the pages of tables", "tables")
    from millrace_pipelines.warehouse.tables.find import table_locations  # noqa: PLC0415

    root = warehouse.rstrip("/") if "://" in warehouse else os.path.abspath(warehouse)
    try:
        found = table_locations(warehouse)
    except OSError as error:
        sentence = f"the tables of admin.console.warehouse={warehouse} can't be listed: {error.strerror or error}"
        _warn_once(sentence)
        way_on = "; the first load into it makes it" if isinstance(error, FileNotFoundError) else ""
        raise InvalidRequestError(f"{sentence}{way_on}") from error
    return {one.removeprefix(root).strip("/") or os.path.basename(one): one for one in found}


@lru_cache(maxsize=16)
def _warn_once(sentence: str) -> None:
    """Writes a sentence to the log the first time only: pages ask for themselves again and again."""
    logger.warning(sentence)


def _locations(console: Console) -> dict[str, str]:
    if not console.settings.warehouse:
        raise InvalidRequestError("the broker's property admin.console.warehouse names no folder of tables")
    return table_locations_by_name(console.settings.warehouse)


def _named(console: Console, asked: Asked) -> tuple[str, str]:
    """Returns name and location of the table that a request names; raises an error for a table not in the warehouse."""
    name = asked.need("name")
    location = _locations(console).get(name)
    if location is None:
        raise UnknownTopicError(f"there is no table {name}")
    return name, location


def _row(name: str, location: str, overview: Overview) -> TableRow:
    from millrace_pipelines.warehouse.ledger.ledger import read_ledger  # noqa: PLC0415
    from millrace_pipelines.warehouse.tables.find import describe_table  # noqa: PLC0415

    try:
        lags = lag_of(read_ledger(location), overview) or {}
        return TableRow(name, describe_table(location), total_lag(lags.values()), "")
    except (MillraceError, OSError) as error:
        return TableRow(name, None, None, str(error))
