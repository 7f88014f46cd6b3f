"""`millrace warehouse query`: SQL over tables, shown to people or written for programs.

| form | what it is |
|---|---|
| `table` | at a terminal a grid that fits it (`grid`), of the first and last rows; else plain columns, nothing cut |
| `csv`, `json`, `arrow`, `parquet` | the whole result, batch by batch: it never is in memory as a whole |

People see a table's own columns before those of the record's envelope (topic, partition, offset …), and programs see
them in the order of the query.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from millrace.errors import SetupError
from millrace.suggestions import did_you_mean
from millrace_ops.cli.options import Json
from millrace_ops.cli.output import NOTHING, one_line, print_table
from millrace_ops.record_values.shown import json_value

if TYPE_CHECKING:
    from io import IOBase

    import pyarrow as pa

    from millrace_ops.cli.grid import Column

Below = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A folder, a bucket (s3://…) or a catalog (iceberg:…/) of tables, or a table."),
]
SHOWN_ROWS = 40
SAMPLE_ROWS = 1_000
PAGER = ("less", "-SRFX")
KINDS = {"int32": "integer", "int64": "bigint", "string": "varchar", "large_string": "varchar", "bool": "boolean"}
FIRST_OF_ENVELOPE = ("offset", "key", "value", "timestamp")


class Form(StrEnum):
    """The forms in which a result is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"


BINARY = (Form.ARROW, Form.PARQUET)


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The options for how a result is shown."""

    form: Annotated[Form, typer.Option("--format", help="The form of the result.")] = Form.TABLE
    as_json: Json = False
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the result to this file.")] = None
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Show these columns, in this order.")] = None
    vertical: Annotated[bool, typer.Option("--vertical", help="A line for each column of a row, nothing cut.")] = False
    all_rows: Annotated[
        bool,
        typer.Option("--all", help=f"At a terminal all rows, not only the first and the last {SHOWN_ROWS // 2}."),
    ] = False
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Do not page through a long result.")] = False


def query(
    directory: Below,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A table goes by the name of its folder.")],
    *,
    shown: ShownAs,
) -> None:
    """Run SQL over a table, or all tables below a folder, by DuckDB; --json prints a line for each row."""
    from millrace_pipelines.warehouse.tables.query import query as run

    form = Form.JSON if shown.as_json else shown.form
    if form in BINARY and shown.output is None and sys.stdout.isatty():
        raise SetupError(f"{form} is no text for a terminal: --output FILE, or a pipe, takes it")
    with run(directory, sql) as result:
        chosen = _chosen(result.reader(), shown.columns)
        if form is Form.TABLE:
            _show(chosen, shown)
        else:
            _write(chosen, form, shown.output)


def _chosen(result: pa.RecordBatchReader, columns: str | None) -> pa.RecordBatchReader:
    """Returns the result with the columns that are asked for; raises SetupError for one that it does not have."""
    if columns is None:
        return result
    names = [one.strip() for one in columns.split(",")]
    for name in names:
        if name not in result.schema.names:
            hint = did_you_mean(name, result.schema.names) or f"; it has {', '.join(result.schema.names)}"
            raise SetupError(f"the result has no column {name}{hint}")
    return _with_columns(result, names)


def _with_columns(result: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    import pyarrow as pa

    schema = pa.schema([result.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in result))


def own_first(names: Sequence[str]) -> list[str]:
    """Returns the columns in the order in which people see them: where the whole envelope is there, it comes last."""
    from millrace_pipelines.arrow import ENVELOPE_COLUMNS

    if not set(ENVELOPE_COLUMNS) <= {*names}:
        return list(names)
    own = [one for one in names if one not in ENVELOPE_COLUMNS]
    first = [one for one in FIRST_OF_ENVELOPE if one in ENVELOPE_COLUMNS]
    return [*own, *first, *(one for one in ENVELOPE_COLUMNS if one not in first)]


# For people.


def _show(result: pa.RecordBatchReader, shown: ShownAs) -> None:
    is_terminal = sys.stdout.isatty() and shown.output is None
    if shown.columns is None and (is_terminal or shown.vertical):
        result = _with_columns(result, own_first(result.schema.names))
    if shown.vertical:
        _print(_vertical(result), shown)
    elif is_terminal:
        _print(_drawn(result, shutil.get_terminal_size().columns, all_rows=shown.all_rows), shown)
    else:
        with _text_file(shown.output) as out:
            print_table(result.schema.names, ([_plain(one) for one in row] for row in _rows(result)), file=out)


def _drawn(result: pa.RecordBatchReader, width: int, *, all_rows: bool) -> Iterator[str]:
    """Yields the lines of a grid; all rows, or the first and the last ones."""
    from millrace_ops.cli.grid import laid_out

    columns, rows = [*map(_column, result.schema)], ([_text(one) for one in row] for row in _rows(result))
    if all_rows:
        sample, read = [*islice(rows, SAMPLE_ROWS)], 0
        grid = laid_out(columns, sample, width)
        yield from grid.head()
        for row in chain(sample, rows):
            yield grid.row(row)
            read += 1
        yield from grid.foot(read, read)
        return
    first, last, behind = [*islice(rows, SHOWN_ROWS // 2)], deque[list[str]](maxlen=SHOWN_ROWS // 2), 0
    for row in rows:
        last.append(row)
        behind += 1
    grid = laid_out(columns, [*first, *last], width)
    yield from grid.head()
    yield from map(grid.row, first)
    if behind > len(last):
        yield grid.between()
    yield from map(grid.row, last)
    yield from grid.foot(len(first) + behind, len(first) + len(last))


def _vertical(result: pa.RecordBatchReader) -> Iterator[str]:
    """Yields a line for each column of each row, as psql does in its expanded form."""
    names = result.schema.names
    width = max(map(len, names), default=0)
    for number, row in enumerate(_rows(result), start=1):
        yield f"-[ RECORD {number} ]-"
        for name, value in zip(names, row, strict=True):
            yield f"{name.ljust(width)} | {_text(value)}"


def _print(lines: Iterator[str], shown: ShownAs) -> None:
    """Prints lines, through a pager where they are more than a terminal has."""
    if shown.output is not None or not sys.stdout.isatty() or shown.no_pager:
        with _text_file(shown.output) as out:
            for line in lines:
                print(line, file=out)
        return
    first = [*islice(lines, shutil.get_terminal_size().lines - 1)]
    rest = next(lines, None)
    if rest is None or not _paged(chain(first, [rest], lines)):
        for line in chain(first, [] if rest is None else [rest], lines):
            print(line)


def _paged(lines: Iterable[str]) -> bool:
    """Hands lines to the pager that the user has; returns false where there is none."""
    given = os.environ.get("PAGER", "").split() or PAGER
    if shutil.which(given[0]) is None:
        return False
    with subprocess.Popen(given, stdin=subprocess.PIPE, text=True) as pager, suppress(BrokenPipeError):
        assert pager.stdin is not None
        for line in lines:
            pager.stdin.write(f"{line}\n")
        pager.stdin.close()
    return True


def _column(field: pa.Field[pa.DataType]) -> Column:
    import pyarrow as pa

    from millrace_ops.cli.grid import Column

    kind, is_number = str(field.type), bool(pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    name = next((name for name in ("struct", "list", "map", "timestamp", "decimal") if kind.startswith(name)), kind)
    return Column(one_line(field.name), KINDS.get(kind, name), is_number)


def _rows(result: pa.RecordBatchReader) -> Iterator[list[object]]:
    from millrace_pipelines.arrow import python_rows

    return (list(row.values()) for batch in result for row in python_rows(batch))


def _plain(value: object) -> object:
    shown = json_value(value)
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list)) else shown


def _text(value: object) -> str:
    shown = _plain(value)
    if isinstance(shown, bool):
        return str(shown).lower()
    return NOTHING if shown is None else one_line(str(shown))


# For programs.


def _write(result: pa.RecordBatchReader, form: Form, path: str | None) -> None:
    """Writes the whole result, batch by batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form in {Form.JSON, Form.CSV}:
        with _text_file(path) as text:
            (_write_json if form is Form.JSON else _write_csv)(result, text)
        return
    with _binary_file(path) as out:
        stream = pa.PythonFile(cast("IOBase", out), mode="w")
        new_writer = pa.ipc.new_stream if form is Form.ARROW else pq.ParquetWriter
        with new_writer(stream, result.schema) as writer:
            for batch in result:
                writer.write_batch(batch)


def _write_json(result: pa.RecordBatchReader, out: IO[str]) -> None:
    for row in _rows(result):
        values = dict(zip(result.schema.names, map(json_value, row), strict=True))
        print(json.dumps(values, ensure_ascii=False), file=out)


def _write_csv(result: pa.RecordBatchReader, out: IO[str]) -> None:
    """Writes a header and a line for each row; null is an empty field, and what has parts is JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.schema.names)
    for row in _rows(result):
        writer.writerow(["" if one is None else _plain(one) for one in row])


@contextmanager
def _text_file(path: str | None) -> Iterator[IO[str]]:
    """Gives stdout, or a new file that gets its name once it is whole. Raises SetupError where it can't be written."""
    if path is None:
        yield sys.stdout
        return
    with _named_when_whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def _binary_file(path: str | None) -> Iterator[IO[bytes]]:
    """Does what `_text_file` does for bytes."""
    if path is None:
        yield sys.stdout.buffer
        return
    with _named_when_whole(path) as temporary, open(temporary, "wb") as file:
        yield file


@contextmanager
def _named_when_whole(path: str) -> Iterator[str]:
    temporary = f"{path}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise SetupError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            os.remove(temporary)
