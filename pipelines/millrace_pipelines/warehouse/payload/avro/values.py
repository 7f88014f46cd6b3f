"""Readers of Avro's types that hold no others, each for all records at once.

    null boolean int long float double bytes string fixed enum      and the logical types date, timestamp, decimal

Source: Apache Avro 1.12, "Binary Encoding" and "Logical Types".
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Column, Places, nulls_of, places_array, values_of
from millrace_pipelines.warehouse.payload.avro.block import Block
from millrace_pipelines.warehouse.payload.calendar import (
    BEYOND,
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
)
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.types import type_text

INT_LIMIT = 1 << 31


class Node(Protocol):
    """A type of the schema; `type` is its column's, None where it has no column and its bytes are passed over."""

    @property
    def type(self) -> pa.DataType | None:
        """The type of the column."""
        ...

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads one value of each row, from the row's next byte on.

        Args:
            block: All records; it is told which of them have a flaw.
            rows: The records that have a value here, in ascending order.
            path: The field's name, for messages.
        """
        ...


class Null:
    """A null, which takes no bytes."""

    type: pa.DataType | None = None

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Returns nulls."""
        del block, path
        return nulls_of(pa.null(), len(rows))


class Boolean:
    """One byte, 0 or 1."""

    type: pa.DataType = pa.bool_()

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads booleans."""
        octets = block.fixed(rows, 1, path)[:, 0]
        block.fail(rows, octets > 1, Reason.MALFORMED, f"field {path}: a boolean is 0 or 1")
        return pa.array(octets == 1, pa.bool_())


class Int:
    """A zig-zag integer of 32 bits."""

    type: pa.DataType = pa.int32()

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads integers."""
        numbers = block.varints(rows, path)
        unfit = (numbers < -INT_LIMIT) | (numbers >= INT_LIMIT)
        block.fail(rows, unfit, Reason.RANGE, f"field {path}: a number does not fit 32 bits")
        return pa.array(numbers.astype(np.int32), pa.int32())


class Date(Int):
    """Days since 1970-01-01."""

    type = pa.date32()

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads dates."""
        days = super().read(block, rows, path).to_numpy()
        beyond = (days < FIRST_DAY) | (days > LAST_DAY)
        block.fail(rows, beyond, Reason.RANGE, f"field {path}: {BEYOND}")
        return pa.array(np.where(beyond, 0, days), pa.int32()).cast(pa.date32())


class Long:
    """A zig-zag integer of 64 bits."""

    type: pa.DataType = pa.int64()

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads integers."""
        return pa.array(block.varints(rows, path), pa.int64())


class Timestamp:
    """A long that counts milli-, micro- or nanoseconds; a column has microseconds, years 1 to 9999."""

    type: pa.DataType = TIMESTAMP_TYPE

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads timestamps."""
        numbers = block.varints(rows, path)
        first, last = (limit * self._per_second // 1_000_000 for limit in (FIRST_MICROSECOND, LAST_MICROSECOND))
        beyond = (numbers < max(first, -(2**63))) | (numbers > min(last, 2**63 - 1))
        block.fail(rows, beyond, Reason.RANGE, f"field {path}: {BEYOND}")
        numbers = np.where(beyond, 0, numbers)
        if self._per_second > 1_000_000:
            finer = numbers % 1000 != 0
            block.fail(rows, finer, Reason.RANGE, f"field {path}: a time finer than a microsecond")
            numbers = numbers // 1000
        else:
            numbers = numbers * (1_000_000 // self._per_second)
        return pa.array(numbers.view("datetime64[us]"), TIMESTAMP_TYPE)


class Floating:
    """A little-endian float or double."""

    def __init__(self, data_type: pa.DataType, dtype: str) -> None:
        self.type, self._dtype = data_type, np.dtype(dtype)

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads numbers; NaN and infinities stay, as Avro has them."""
        octets = np.ascontiguousarray(block.fixed(rows, self._dtype.itemsize, path))
        return pa.array(octets.view(self._dtype)[:, 0], self.type)


class Binary:
    """Bytes behind their length."""

    type: pa.DataType = pa.binary()

    def read(self, block: Block, rows: Places, path: str) -> pa.BinaryArray:
        """Reads bytes."""
        return block.binary(rows, path)


class Text:
    """UTF-8 behind its length."""

    type: pa.DataType = pa.string()

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads texts."""
        octets = block.binary(rows, path)
        try:
            return octets.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_utf8(value) for value in values_of(octets)])
            block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: Invalid UTF8 sequence")
            kept: Column = pc.if_else(pa.array(wrong, pa.bool_()), b"", octets)
            return kept.cast(pa.string())


class Fixed:
    """A fixed number of bytes."""

    type: pa.DataType = pa.binary()

    def __init__(self, width: int) -> None:
        self._width = width

    def read(self, block: Block, rows: Places, path: str) -> pa.BinaryArray:
        """Reads bytes."""
        octets = np.ascontiguousarray(block.fixed(rows, self._width, path))
        return pa.array([row.tobytes() for row in octets], pa.binary())


class DecimalNumber:
    """The unscaled value in big-endian two's complement, in bytes or fixed."""

    def __init__(self, octets: Binary | Fixed, precision: int, scale: int) -> None:
        self.type: pa.DataType = pa.decimal128(precision, scale)
        self._octets = octets
        self._limit, self._scale = 10**precision, scale

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads decimals."""
        found = values_of(self._octets.read(block, rows, path))
        numbers = [int.from_bytes(octets, "big", signed=True) for octets in found]
        wrong = np.array([not -self._limit < number < self._limit for number in numbers], np.bool_)
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: a number does not fit {type_text(self.type)}")
        kept = [0 if bad else number for number, bad in zip(numbers, wrong, strict=True)]
        return pa.array([_decimal(number, self._scale) for number in kept], self.type)


class Enum:
    """The index of a symbol among the schema's."""

    type: pa.DataType = pa.string()

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, block: Block, rows: Places, path: str) -> Column:
        """Reads symbols."""
        places = block.varints(rows, path)
        wrong = (places < 0) | (places >= len(self._symbols))
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: no such symbol")
        return self._symbols.take(places_array(np.where(wrong, 0, places)))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimal(number: int, scale: int) -> Decimal:
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -scale))
