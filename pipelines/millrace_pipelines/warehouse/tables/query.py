"""Reading tables by SQL in DuckDB.

Each name means one table, and DuckDB knows no upper and lower case of ASCII's letters:

    /lake/orders              orders                     its folder's name, where no other table has it in any case
    /lake/eu/sales            "eu/sales"                 its path below the folder that is queried, where another
    /lake/us/sales            "us/sales"                 table has the name of its folder
    /lake/Events              "Events_8d14f6e7"          with a checksum of the path, where paths differ in case alone
    /lake/events              "events_862417b9"
    iceberg:lake/eu.sales     "eu.sales"                 in a catalog, its namespace where its name alone is not enough

A name that could mean several tables means none of them, and what it could mean is said. Which other tables there are
changes no name with a path or a checksum that is unique by itself: both follow from the table's own path.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from millrace.arrow_rows import ArrowRows
from millrace.extras import require
from millrace.fs import FileSystem
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Format
from millrace_pipelines.warehouse.errors import QueryError, TableNotFoundError
from millrace_pipelines.warehouse.formats import format_of, load_table, name_of
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.find import State, tables_below

if TYPE_CHECKING:
    import duckdb


class SqlNames(NamedTuple):
    """The tables' names in SQL by location, and a sentence for each name that could mean several tables."""

    by_location: Mapping[str, str]
    refused: Mapping[str, str]


def sql_names(root: str, locations: Iterable[str]) -> SqlNames:
    """Returns the names in SQL of the tables in or below a folder, a bucket or a catalog."""
    paths = {one: _path(root, one) for one in locations}
    named = {one: [_last(one), paths[one], _with_checksum(paths[one])] for one in paths}
    counts = Counter(folded for names in named.values() for folded in {*map(_folded, names)})
    chosen = {one: _chosen(one, [name for name in names if counts[_folded(name)] == 1]) for one, names in named.items()}
    meant: dict[str, list[str]] = {}
    for one, names in named.items():
        for folded in {*map(_folded, names)}:
            meant.setdefault(folded, []).append(one)
    return SqlNames(chosen, {name: _sentence(name, ones, chosen) for name, ones in meant.items() if len(ones) > 1})


def _path(root: str, location: str) -> str:
    if format_of(location) is Format.ICEBERG:
        return name_of(location)
    return location.removeprefix(root.rstrip("/")).strip("/") or os.path.basename(location)


def _last(location: str) -> str:
    return name_of(location).rpartition(".")[2] if format_of(location) is Format.ICEBERG else os.path.basename(location)


def _chosen(location: str, free: list[str]) -> str:
    if not free:
        raise QueryError(f"{location} has no name in SQL that no other table has; query this table alone")
    return free[0]


def _folded(name: str) -> str:
    """Returns a name in the form in which DuckDB compares names: ASCII letters in lower case."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _with_checksum(path: str) -> str:
    return f"{path}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _sentence(name: str, locations: Iterable[str], chosen: Mapping[str, str]) -> str:
    choices = " and ".join(f'"{chosen[one]}" for {one}' for one in locations)
    return f"{name} could be several tables, for SQL knows no upper and lower case; write {choices}"


def query(location: str, sql: str, fs: FileSystem = DISK) -> QueryResult:
    """Runs SQL by DuckDB over a table, or over all tables below a folder; the result gives rows as they are asked for.

    A table has the name of its folder, its dead letters the name `<name>__dead_letters` (`sql_names` has the rule for
    names that are not unique). Times are in UTC, whatever zone the machine is in. Of columns with the same name the
    later ones get a number: `id`, `id_1`.

    Raises:
        TableNotFoundError: There is no table of Millrace at the location or below.
        QueryError: DuckDB refuses the query; the message says why.
        SetupError: DuckDB is not installed.
    """
    require("a query", "query")
    import duckdb  # noqa: PLC0415

    found = _tables(location, fs)
    # DuckDB would take a name that is no table for a variable of this program.
    connection = duckdb.connect(config={"python_enable_replacements": False})
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in found.tables.items():
        connection.register(name, table.dataset())
    try:
        return QueryResult(connection, sql, found)
    except BaseException:
        connection.close()
        raise


class QueryResult(ArrowRows):
    """The rows of a query: iterate over their batches, or ask for all as `arrow()`, `df()` (pandas) or `pl()` (polars).

    The query runs again each time that its rows are asked for, one time after the other, over the tables as they were
    at first. `close`, which the end of a `with` block calls, frees what it holds; so does the end of its last use.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: str, found: _Found) -> None:
        self._connection, self._found = connection, found
        with self._named_errors():
            self._relation = connection.sql(sql)
            self._schema = pa.schema([]) if self._relation is None else _schema_of(self._relation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the query; its rows can't be asked for any more."""
        self._connection.close()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    def read_all(self) -> pa.Table:
        """Returns all rows, as `arrow` does."""
        return self.arrow()

    def __repr__(self) -> str:
        with self._named_errors():
            return "" if self._relation is None else str(self._relation)

    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        if self._relation is None:
            return
        with self._named_errors():
            for batch in _stream(self._relation):
                yield batch.rename_columns(self._schema.names)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        import duckdb  # noqa: PLC0415  only a query needs it

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:  # Arrow's, where rows before the fault were read
            raise QueryError(self._found.refused(str(error))) from error


def _schema_of(relation: duckdb.DuckDBPyRelation) -> pa.Schema:
    """Returns the columns, without running the query; a limit gives those with one name other names."""
    fields = zip(_stream(relation.limit(0)).schema, distinct_names(relation.columns), strict=True)
    return pa.schema([field.with_name(name) for field, name in fields])


def _stream(relation: duckdb.DuckDBPyRelation) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(relation)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Returns the names made unique: a repeated one gets the first number that makes it new, as in `id_1`."""
    found: list[str] = []
    for name in names:
        taken = {*names, *found} if name in found else ()
        candidates = chain([name], (f"{name}_{number}" for number in count(1)))
        found.append(next(one for one in candidates if one not in taken))
    return found


class _Found(NamedTuple):
    """The tables by their names in SQL, and a sentence for each name that is refused."""

    tables: Mapping[str, Table]
    not_tables: Mapping[str, str]

    def refused(self, error: str) -> str:
        """Returns the sentence on the refused name that DuckDB's `error` says is missing; else `error` itself."""
        missed = error.partition("\n")[0]
        for name, sentence in self.not_tables.items():
            if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", missed, re.ASCII | re.IGNORECASE):
                return sentence
        return error


def _tables(location: str, fs: FileSystem) -> _Found:
    listed = tables_below(location, fs)
    tables = dict(_loaded([one.location for one in listed if one.state is State.LOADED], fs))
    others = [one for one in listed if one.state is not State.LOADED]
    if not tables and [one.location for one in others] == [os.path.abspath(location)]:
        with suppress(TableNotFoundError):
            load_table(location, fs)  # says itself why it can't be read
    if not tables:
        reasons = "".join(f"; {one.location} is {one.state}: {one.reason}" for one in others)
        raise TableNotFoundError(f"{location}: no table of Millrace here or below{reasons}")
    root = location if "://" in location or format_of(location) is Format.ICEBERG else os.path.abspath(location)
    names = sql_names(root, tables)
    sentences = {_last(one.location): f"{one.location} is {one.state}: {one.reason}" for one in others}
    return _Found({names.by_location[one]: table for one, table in tables.items()}, sentences | dict(names.refused))


def _loaded(locations: Iterable[str], fs: FileSystem) -> Iterator[tuple[str, Table]]:
    for location in locations:
        yield location, load_table(location, fs)
        with suppress(TableNotFoundError):
            dead_letters = dead_letters_dir(location)
            yield dead_letters, load_table(dead_letters, fs)
