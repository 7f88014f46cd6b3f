"""The tables below a folder: what each of Millrace's holds, and how far it is behind its topic; and all others."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import UnknownTopicError
from millrace.fs import OsFileSystem
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource, describe_topic, log_offsets
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, ledger_of
from millrace_pipelines.warehouse.tables.failed_loads import FailedLoads, read_failed_loads
from millrace_pipelines.warehouse.tables.places import (
    CANT_BE_READ,
    ListedTable,
    State,
    listed_tables,
    tables_below,
    unreadable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One table.

    `dead_letters` is None where it has no table of them, `lag` where it is unknown or not requested, and `failed_loads`
    where the newest load did not fail.
    """

    location: str
    topic: str
    rows: int
    dead_letters: int | None
    files: int
    bytes: int
    version: int
    lag: int | None = None
    failed_loads: FailedLoads | None = None


def find_tables(directory: str) -> list[str]:
    """Returns the locations of all tables of topics in or below a folder or a bucket, without those of dead letters."""
    return [place.location for place in tables_below(directory) if place.state is State.LOADED]


def table_locations(directory: str) -> list[str]:
    """Returns where Delta tables lie, of Millrace and of others, in or below a folder or a bucket; reads none of them.

    Those of dead letters, and folders that can't be listed, are left out.
    """
    return [place.location for place in listed_tables(directory) if place.state is State.LOADED]


def describe_all(
    directory: str, bootstrap: str | None = None, client_config: str | None = None
) -> tuple[list[TableFacts], list[ListedTable]]:
    """Describes all tables in or below a folder or a bucket, and returns the places of tables that are not Millrace's.

    Raises ClientError where the cluster can't be asked, and OSError where the folder itself can't be listed.
    """
    facts: list[TableFacts] = []
    others: list[ListedTable] = []
    for place in tables_below(directory):
        try:
            if place.state is State.LOADED:
                facts.append(describe_table(place.location, bootstrap, client_config))
            else:
                others.append(place)
        except CANT_BE_READ as error:
            others.append(unreadable(place.location, error))
    return facts, others


def describe_table(location: str, bootstrap: str | None = None, client_config: str | None = None) -> TableFacts:
    """Describes what a table holds, from its log, and which of its newest loads failed.

    Args:
        location: The table's location.
        bootstrap: HOST:PORT of a broker that is asked how many readable offsets the table lacks; None asks no broker.
        client_config: The file that secures the connection (docs/client-security.md).

    Raises:
        TableNotFoundError: There is no table of Millrace at the location.
        ClientError: The cluster can't be asked.
    """
    fs = OsFileSystem()
    table = Table.load(location, fs)
    ledger = ledger_of(table)
    rows, size_bytes, files = _totals(table)
    return TableFacts(
        location=location,
        topic=ledger.topic,
        rows=rows,
        dead_letters=_dead_letters(location),
        files=files,
        bytes=size_bytes,
        version=table.version,
        lag=None if bootstrap is None else sum_of(lag_of(ledger, bootstrap, client_config)),
        failed_loads=read_failed_loads(location, fs),
    )


def lag_of(ledger: Ledger, bootstrap: str, client_config: str | None = None) -> dict[int, int] | None:
    """Returns by partition how many readable offsets a table lacks; None where its topic is gone or was recreated."""
    source = TopicSource(bootstrap, ledger.topic, security=SecuritySource(client_config))
    try:
        description = describe_topic(source)
    except UnknownTopicError:
        return None
    if description.topic_id != ledger.topic_id:
        return None
    return {
        partition: log.end_offset - max(ledger.next_offset(partition) or 0, log.start_offset)
        for partition, log in log_offsets(source, description.partitions).items()
    }


def sum_of(lag: dict[int, int] | None) -> int | None:
    """Adds up the lag of all partitions; None where it is unknown."""
    return None if lag is None else sum(max(0, offsets) for offsets in lag.values())


def _totals(table: Table) -> tuple[int, int, int]:
    """Returns how many rows, bytes and files the table has."""
    actions = table.add_actions().select(["num_records", "size_bytes"]).to_pylist()
    rows = sum(action["num_records"] or 0 for action in actions)
    return rows, sum(action["size_bytes"] for action in actions), len(actions)


def _dead_letters(location: str) -> int | None:
    try:
        return _totals(Table.load(dead_letters_dir(location), OsFileSystem()))[0]
    except TableNotFoundError:
        return None
