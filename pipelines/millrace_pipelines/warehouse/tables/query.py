"""Reading tables: as a Spark DataFrame from the list of files, which needs no Delta jar, and by SQL in DuckDB.

In SQL each name means one table, and DuckDB knows no upper and lower case of ASCII's letters:

    /lake/orders              orders                     its folder's name, where no other table has it in any case
    /lake/eu/sales            "eu/sales"                 its path below the folder that is queried, where another
    /lake/us/sales            "us/sales"                 table has the name of its folder
    /lake/Events              "Events_8d14f6e7"          with a checksum of the path, where paths differ in case alone
    /lake/events              "events_862417b9"

A name that could mean several tables means none of them, and what it could mean is said. Which other tables there are
changes no name with a path or a checksum that is unique by itself: both follow from the table's own path.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from millrace.extras import require
from millrace.fs import FileSystem
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.delta.store import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import QueryError, TableNotFoundError
from millrace_pipelines.warehouse.tables.find import State, tables_below

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlNames(NamedTuple):
    """The tables' names in SQL by location, and a sentence for each name that could mean several tables."""

    by_location: Mapping[str, str]
    refused: Mapping[str, str]


def sql_names(root: str, locations: Iterable[str]) -> SqlNames:
    """Returns the names in SQL of the tables in or below a folder or a bucket."""
    paths = {one: one.removeprefix(root.rstrip("/")).strip("/") or os.path.basename(one) for one in locations}
    named = {one: [os.path.basename(one), paths[one], _with_checksum(paths[one])] for one in paths}
    counts = Counter(folded for names in named.values() for folded in {*map(_folded, names)})
    chosen = {one: _chosen(one, [name for name in names if counts[_folded(name)] == 1]) for one, names in named.items()}
    meant: dict[str, list[str]] = {}
    for one, names in named.items():
        for folded in {*map(_folded, names)}:
            meant.setdefault(folded, []).append(one)
    return SqlNames(chosen, {name: _sentence(name, ones, chosen) for name, ones in meant.items() if len(ones) > 1})


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


def spark_table(spark: SparkSession, location: str, fs: FileSystem = DISK) -> DataFrame:
    """Returns the rows of the table's newest version; raises TableNotFoundError where there is none."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # a query without Spark needs none of it

    table = Table.load(location, fs)
    schema = from_arrow_schema(table.schema)
    paths = table.files()
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", table.location)
    rows = reader.parquet(*paths)
    deleted = [
        (os.path.basename(name), int(row)) for name, kept in table.kept_rows().items() for row in np.flatnonzero(~kept)
    ]
    if deleted:
        gone = spark.createDataFrame(deleted, "file_name string, row_index long")
        rows = rows.select("*", "_metadata.file_name", "_metadata.row_index")
        rows = rows.join(gone, ["file_name", "row_index"], "left_anti")
    return rows.select(*schema.fieldNames())


@contextmanager
def query(location: str, sql: str, fs: FileSystem = DISK) -> Iterator[pa.RecordBatchReader]:
    """Runs SQL by DuckDB over a table, or over all tables below a folder; yields a reader of the result's batches.

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

    # DuckDB would take a name that is no table for a variable of this program.
    with duckdb.connect(config={"python_enable_replacements": False}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = _tables(location, fs)
        for name, table in found.tables.items():
            connection.register(name, table.dataset())
        try:
            result = connection.sql(sql)
            yield _columns_apart(pa.RecordBatchReader.from_stream(pa.table({}) if result is None else result))
        except duckdb.Error as error:
            raise QueryError(found.refused(str(error))) from error


def distinct_names(names: Sequence[str]) -> list[str]:
    """Returns the names made unique: a repeated one gets the first number that makes it new, as in `id_1`."""
    found: list[str] = []
    for name in names:
        taken = {*names, *found} if name in found else ()
        candidates = chain([name], (f"{name}_{number}" for number in count(1)))
        found.append(next(one for one in candidates if one not in taken))
    return found


def _columns_apart(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    names = distinct_names(rows.schema.names)
    if names == rows.schema.names:
        return rows
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in rows))


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
            Table.load(location, fs)  # says itself why it can't be read
    if not tables:
        reasons = "".join(f"; {one.location} is {one.state}: {one.reason}" for one in others)
        raise TableNotFoundError(f"{location}: no table of Millrace here or below{reasons}")
    root = location if "://" in location else os.path.abspath(location)
    names = sql_names(root, tables)
    sentences = {os.path.basename(one.location): f"{one.location} is {one.state}: {one.reason}" for one in others}
    return _Found({names.by_location[one]: table for one, table in tables.items()}, sentences | dict(names.refused))


def _loaded(locations: Iterable[str], fs: FileSystem) -> Iterator[tuple[str, Table]]:
    for location in locations:
        yield location, Table.load(location, fs)
        with suppress(TableNotFoundError):
            dead_letters = dead_letters_dir(location)
            yield dead_letters, Table.load(dead_letters, fs)
