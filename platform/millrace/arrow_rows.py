"""Rows for a person at a prompt: as Arrow, pandas or polars, one batch after the other, or as a table of a notebook.

What makes the rows derives from `ArrowRows`. It keeps none of them: each look at it makes them again, so it can be
looked at again, and what is larger than memory is read batch by batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing
from html import escape
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from millrace.errors import SetupError

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]
    from polars import DataFrame as PolarsFrame

NOTEBOOK_ROWS = 40
NOTEBOOK_CHARACTERS = 200


class ArrowRows(ABC):
    """Rows that are made again, batch by batch, each time they are asked for.

    Iterating yields `pyarrow.RecordBatch`; whatever takes Arrow's stream interface takes the object itself.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    @abstractmethod
    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Makes the rows."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def reader(self) -> pa.RecordBatchReader:
        """Returns a reader of the batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: object = self.reader().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def arrow(self) -> pa.Table:
        """Returns all rows as a table of Arrow."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def df(self) -> DataFrame:
        """Returns all rows as a data frame of pandas; raises SetupError where pandas is not installed."""
        _check_installed("pandas")
        return self.arrow().to_pandas()

    def pl(self) -> PolarsFrame:
        """Returns all rows as a data frame of polars; raises SetupError where polars is not installed."""
        _check_installed("polars")
        from polars import from_arrow  # noqa: PLC0415  only those who want it have it, and it takes long to import

        return cast("PolarsFrame", from_arrow(self.arrow()))

    def _repr_html_(self) -> str:
        """Returns the first rows as a table for a notebook; no more of them are made."""
        with closing(self._batches()) as batches:
            rows = islice(_rows(batches), NOTEBOOK_ROWS + 1)
            lines = [f"<tr>{''.join(f'<td>{_cell(one)}</td>' for one in row)}</tr>" for row in rows]
        columns = ((escape(one.name), escape(str(one.type))) for one in self.schema)
        head = "".join(f"<th>{name}<br><small>{kind}</small></th>" for name, kind in columns)
        more = f"<p>the first {NOTEBOOK_ROWS} rows</p>" if len(lines) > NOTEBOOK_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines[:NOTEBOOK_ROWS])}</tbody></table>{more}"


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        for first in range(0, batch.num_rows, NOTEBOOK_ROWS):
            few = batch.slice(first, NOTEBOOK_ROWS)
            yield from zip(*([_text(one) for one in column] for column in few.columns), strict=True)


def _text(value: pa.Scalar[pa.DataType]) -> str:
    """Returns a value as text; of bytes that are UTF-8, the text that they are."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):  # a time that Python's calendar lacks
        return _uncommon_text(value)
    if not isinstance(plain, bytes):
        return "" if plain is None else str(plain)
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return str(plain)


def _uncommon_text(value: pa.Scalar[pa.DataType]) -> str:
    try:
        return str(value.cast(pa.string()).as_py())
    except NotImplementedError:  # PyArrow cannot cast a list or a struct with such a value in it
        return "…"


def _cell(text: object) -> str:
    shown = str(text)
    return escape(shown if len(shown) <= NOTEBOOK_CHARACTERS else f"{shown[:NOTEBOOK_CHARACTERS]}…")


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise SetupError(f"this needs {package}: pip install {package}")
