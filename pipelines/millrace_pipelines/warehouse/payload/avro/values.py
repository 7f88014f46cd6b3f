"""Readers of Avro's types, each for all records at once.

    null boolean int long float double bytes string fixed enum      and the logical types date, timestamp, decimal
    record → struct    array → list    map → map            repeated item by item, all records in step
    union of null and one type → that type, nullable        a union of several types has no column

The records lie one behind the other, and a block knows where each is read next, and its first flaw:

    data    │ record 0 │ record 1 │ …          bytes of a binary column
    at          ^          ^                   the next byte of each record
    ends               ^          ^            the byte after each record

A record that is cut short, or otherwise wrong, is marked with its first flaw and stays at its end; what is read of it
is dropped later. No record is read beyond its end.

Source: Apache Avro 1.12, "Binary Encoding" and "Logical Types".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import (
    Column,
    Field,
    Flags,
    Indices,
    Octets,
    data_of,
    indices_array,
    list_column,
    map_column,
    nulls_of,
    octets_of,
    offsets_array,
    offsets_of,
    slices,
    values_of,
)
from millrace_pipelines.warehouse.payload.outcome import Reason, Refusal
from millrace_pipelines.warehouse.payload.types import (
    BEYOND,
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    list_of,
    map_of,
    type_text,
)

Integers = npt.NDArray[np.int64]
MAX_SHIFT = 63


class Block:
    """Reads the Avro records of a binary array without nulls: one field of all records, then the next field."""

    def __init__(self, values: pa.BinaryArray) -> None:
        bounds = offsets_of(values)
        self._buffer = data_of(values)
        self._data = octets_of(self._buffer)
        self.at: Integers = bounds[:-1].astype(np.int64)
        self.ends: Integers = bounds[1:].astype(np.int64)
        self.failed: Flags = np.zeros(len(values), np.bool_)
        self._flaws: dict[int, tuple[Reason, str]] = {}

    def __len__(self) -> int:
        return len(self.at)

    def fail(self, rows: Indices, wrong: Flags, reason: Reason, message: str) -> None:
        """Marks those of `rows` for which `wrong` is true as failed, unless they failed before."""
        for row in rows[wrong & ~self.failed[rows]].tolist():
            self._flaws[row] = (reason, message)
        self.failed[rows[wrong]] = True
        self.at[rows[wrong]] = self.ends[rows[wrong]]

    def finish(self) -> Iterator[Refusal]:
        """Marks the records that have bytes left as failed, and yields a refusal for each failed record."""
        self.fail(np.arange(len(self)), self.at != self.ends, Reason.MALFORMED, "bytes after the record's end")
        for row, (reason, message) in self._flaws.items():
            yield Refusal(row, reason, message)

    def varints(self, rows: Indices, path: str) -> Integers:
        """Reads a zig-zag integer from each of these rows."""
        at = self.at[rows]
        octet = self._octets(at)
        zigzag = (octet & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(octet >= 0x80)
        shift = 7
        while more.size:
            octet = self._octets(at[more])
            if shift == MAX_SHIFT:
                self.fail(rows[more], octet > 1, Reason.MALFORMED, f"field {path}: an integer is longer than 64 bits")
            zigzag[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            shift += 7
            more = more[octet >= 0x80] if shift <= MAX_SHIFT else more[:0]
        self._moved(rows, at, path)
        return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)

    def fixed(self, rows: Indices, width: int, path: str) -> Octets:
        """Reads `width` bytes from each of these rows; returns them as a matrix with a line for each row."""
        at = self.at[rows]
        octets: Octets = self._data[np.minimum(at[:, None] + np.arange(width), self._data.size - 1)]
        self._moved(rows, at + width, path)
        return octets

    def binary(self, rows: Indices, path: str) -> pa.BinaryArray:
        """Reads a length and that many bytes from each of these rows, which must ascend, as a binary column."""
        lengths = self.varints(rows, path)
        begins = self.at[rows]
        wrong = (lengths < 0) | (lengths > self.ends[rows] - begins)
        self.fail(rows, wrong, Reason.MALFORMED, f"field {path}: cut short")
        begins = self.at[rows]
        ends = begins + np.where(self.failed[rows], 0, lengths)
        self.at[rows] = ends
        return slices(self._buffer, begins, ends)

    def _octets(self, at: Integers) -> Octets:
        octets: Octets = self._data[np.minimum(at, self._data.size - 1)]
        return octets

    def _moved(self, rows: Indices, at: Integers, path: str) -> None:
        ends = self.ends[rows]
        self.at[rows] = np.minimum(at, ends)
        beyond = at > ends
        if bool(beyond.any()):
            self.fail(rows, beyond, Reason.MALFORMED, f"field {path}: cut short")
        if self._flaws:
            self.at[rows] = np.where(self.failed[rows], ends, self.at[rows])


INT_LIMIT = 1 << 31
MAX_ITEMS = 100_000


class Node(Protocol):
    """The reader of an Avro type; `type` is its column's, None where its bytes are passed over without a column."""

    @property
    def type(self) -> pa.DataType | None:
        """Returns the type of the column; None for a type without a column."""
        ...

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Reads one value of each row, from the row's next byte on.

        Args:
            block: All records; marks those that can't be read as failed.
            rows: The records that have a value here, in ascending order.
            path: The field's name, for messages.
        """
        ...


class Null:
    """Avro's null, which takes no bytes."""

    type: pa.DataType | None = None

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a null for each of `rows`, and reads no bytes."""
        del block, path
        return nulls_of(pa.null(), len(rows))


class Boolean:
    """Avro's boolean: one byte, 0 or 1."""

    type: pa.DataType = pa.bool_()

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a boolean for each of `rows`, read from one byte."""
        octets = block.fixed(rows, 1, path)[:, 0]
        block.fail(rows, octets > 1, Reason.MALFORMED, f"field {path}: a boolean is 0 or 1")
        return pa.array(octets == 1, pa.bool_())


class Int:
    """Avro's int: a zig-zag integer of 32 bits."""

    type: pa.DataType = pa.int32()

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a 32-bit integer for each of `rows`; marks larger ones as failed."""
        numbers = block.varints(rows, path)
        unfit = (numbers < -INT_LIMIT) | (numbers >= INT_LIMIT)
        block.fail(rows, unfit, Reason.RANGE, f"field {path}: a number does not fit 32 bits")
        return pa.array(numbers.astype(np.int32), pa.int32())


class Date(Int):
    """An int that counts days since 1970-01-01."""

    type = pa.date32()

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a date for each of `rows`, read from its int of days."""
        days = super().read(block, rows, path).to_numpy()
        beyond = (days < FIRST_DAY) | (days > LAST_DAY)
        block.fail(rows, beyond, Reason.RANGE, f"field {path}: {BEYOND}")
        return pa.array(np.where(beyond, 0, days), pa.int32()).cast(pa.date32())


class Long:
    """Avro's long: a zig-zag integer of 64 bits."""

    type: pa.DataType = pa.int64()

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a 64-bit integer for each of `rows`."""
        return pa.array(block.varints(rows, path), pa.int64())


class Timestamp:
    """A long that counts milli-, micro- or nanoseconds; its column has microseconds, in the years 1 to 9999."""

    type: pa.DataType = TIMESTAMP_TYPE

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a timestamp in microseconds for each of `rows`, read from its long."""
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

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a floating-point number for each of `rows`; NaN and infinities stay, as Avro has them."""
        octets = np.ascontiguousarray(block.fixed(rows, self._dtype.itemsize, path))
        return pa.array(octets.view(self._dtype)[:, 0], self.type)


class Binary:
    """Avro's bytes: a length, then the bytes."""

    type: pa.DataType = pa.binary()

    def read(self, block: Block, rows: Indices, path: str) -> pa.BinaryArray:
        """Returns bytes for each of `rows`, read after their length."""
        return block.binary(rows, path)


class Text:
    """Avro's string: a length, then UTF-8."""

    type: pa.DataType = pa.string()

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a text for each of `rows`; marks those that are not UTF-8 as failed."""
        octets = block.binary(rows, path)
        try:
            return octets.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_utf8(value) for value in values_of(octets)])
            block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: Invalid UTF8 sequence")
            kept: Column = pc.if_else(pa.array(wrong, pa.bool_()), b"", octets)
            return kept.cast(pa.string())


class Fixed:
    """Avro's fixed: always the same number of bytes."""

    type: pa.DataType = pa.binary()

    def __init__(self, width: int) -> None:
        self._width = width

    def read(self, block: Block, rows: Indices, path: str) -> pa.BinaryArray:
        """Returns the fixed number of bytes for each of `rows`."""
        octets = np.ascontiguousarray(block.fixed(rows, self._width, path))
        return pa.array([row.tobytes() for row in octets], pa.binary())


class DecimalNumber:
    """A decimal: its unscaled value in big-endian two's complement, as bytes or fixed."""

    def __init__(self, octets: Binary | Fixed, precision: int, scale: int) -> None:
        self.type: pa.DataType = pa.decimal128(precision, scale)
        self._octets = octets
        self._limit, self._scale = 10**precision, scale

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a decimal for each of `rows`; marks those with too many digits as failed."""
        found = values_of(self._octets.read(block, rows, path))
        numbers = [int.from_bytes(octets, "big", signed=True) for octets in found]
        wrong = np.array([not -self._limit < number < self._limit for number in numbers], np.bool_)
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: a number does not fit {type_text(self.type)}")
        kept = [0 if bad else number for number, bad in zip(numbers, wrong, strict=True)]
        return pa.array([_decimal(number, self._scale) for number in kept], self.type)


class Enum:
    """Avro's enum: the index of one of the schema's symbols."""

    type: pa.DataType = pa.string()

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns the name of a symbol for each of `rows`, read from its index."""
        chosen = block.varints(rows, path)
        wrong = (chosen < 0) | (chosen >= len(self._symbols))
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: no such symbol")
        return self._symbols.take(indices_array(np.where(wrong, 0, chosen)))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimal(number: int, scale: int) -> Decimal:
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -scale))


class Union:
    """Avro's union: the index of a branch, then its value; it has a column where there is one branch beside null."""

    def __init__(self, branches: Sequence[Node]) -> None:
        self._branches = branches
        present = [index for index, branch in enumerate(branches) if not isinstance(branch, Null)]
        self._branch = present[0] if len(present) == 1 else None
        self.is_nullable = len(present) < len(branches)
        self.type = None if self._branch is None else branches[self._branch].type

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Reads the values of the branch that has a column, null for the branch null."""
        chosen = block.varints(rows, path)
        wrong = (chosen < 0) | (chosen >= len(self._branches))
        block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: no such branch of a union")
        found = nulls_of(pa.null(), len(rows))
        for index, branch in enumerate(self._branches):
            mine = (chosen == index) & ~block.failed[rows]
            if isinstance(branch, Null) or not bool(mine.any()):
                continue
            values = branch.read(block, rows[mine], path)
            if index == self._branch:
                found = values if bool(mine.all()) else _spread(values, mine)
        return found if self.type is None or found.type == self.type else nulls_of(self.type, len(rows))


class Record:
    """Avro's record: its fields, one after the other."""

    def __init__(self, fields: Sequence[tuple[str, Node]]) -> None:
        self.fields = fields
        self.columns: list[Field] = [
            pa.field(name, node.type, is_nullable(node)) for name, node in fields if node.type is not None
        ]
        self.type = pa.struct(self.columns) if self.columns else None

    def arrays(self, block: Block, rows: Indices, path: str) -> list[Column]:
        """Reads all fields of each of `rows`; returns the columns of those fields whose type has one."""
        within = f"{path}/" if path else ""
        read = [(node.type, node.read(block, rows, within + name)) for name, node in self.fields]
        return [array for data_type, array in read if data_type is not None]

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a struct of the fields that have a column for each of `rows`; nulls where none has."""
        arrays = self.arrays(block, rows, path)
        return pa.StructArray.from_arrays(arrays, fields=self.columns) if arrays else nulls_of(pa.null(), len(rows))


class Array:
    """Avro's array: blocks of items, each after its count, up to a count of 0."""

    def __init__(self, items: Node) -> None:
        self._items = items
        self.type = None if items.type is None else list_of(items.type, nullable=is_nullable(items))

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a list for each of `rows`; nulls where the items' type has no column."""
        owners, items = _repeated(block, rows, path, lambda some: self._items.read(block, some, f"{path}/[]"))
        if self.type is None or self._items.type is None:
            return nulls_of(pa.null(), len(rows))
        offsets, order = _layout(owners, len(rows))
        return list_column(self.type, offsets, _flat(items, self._items.type, order))


class Map:
    """Avro's map: encoded as an array whose items are a key and a value."""

    def __init__(self, values: Node) -> None:
        self._keys, self._values = Text(), values
        self.type = None if values.type is None else map_of(pa.string(), values.type, nullable=is_nullable(values))

    def read(self, block: Block, rows: Indices, path: str) -> Column:
        """Returns a map for each of `rows`; marks those with a key twice as failed."""
        keys: list[Column] = []

        def read(some: Indices) -> Column:
            keys.append(self._keys.read(block, some, f"{path}/key"))
            return self._values.read(block, some, f"{path}/value")

        owners, values = _repeated(block, rows, path, read)
        if self.type is None or self._values.type is None:
            return nulls_of(pa.null(), len(rows))
        offsets, order = _layout(owners, len(rows))
        flat_keys = _flat(keys, pa.string(), order)
        self._fail_doubled(block, rows, flat_keys, np.sort(owners), path)
        return map_column(self.type, offsets, flat_keys, _flat(values, self._values.type, order))

    def _fail_doubled(self, block: Block, rows: Indices, keys: Column, owners: Integers, path: str) -> None:
        encoded = keys.dictionary_encode()
        pairs = owners * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        unique, counts = np.unique(pairs, return_counts=True)
        wrong = np.zeros(len(rows), np.bool_)
        wrong[unique[counts > 1] // max(len(encoded.dictionary), 1)] = True
        block.fail(rows, wrong, Reason.DUPLICATE, f"field {path}: a key is there twice")


def is_nullable(node: Node) -> bool:
    """Returns whether a value of this type may be null."""
    return isinstance(node, Union) and node.is_nullable


def _repeated(
    block: Block, rows: Indices, path: str, read: Callable[[Indices], Column]
) -> tuple[Integers, list[Column]]:
    """Reads the items of all rows in step; returns each item's index into `rows`, and the items in the order read."""
    owners: list[Integers] = []
    items: list[Column] = []
    remaining = _counts(block, rows, path)
    while (active := np.flatnonzero(remaining > 0)).size:
        items.append(read(rows[active]))
        owners.append(active)
        if len(owners) >= MAX_ITEMS:
            block.fail(rows, remaining > 0, Reason.RANGE, f"field {path}: more than {MAX_ITEMS} items")
        remaining[active] -= 1
        ended = active[remaining[active] == 0]
        remaining[ended] = _counts(block, rows[ended], path)
        remaining[block.failed[rows]] = 0
    return np.concatenate(owners) if owners else np.zeros(0, np.int64), items


def _counts(block: Block, rows: Indices, path: str) -> Integers:
    """Reads the count of each row's next block of items; after a negative count stands the block's size in bytes."""
    counts = block.varints(rows, path)
    sized = np.flatnonzero(counts < 0)
    if sized.size:
        block.varints(rows[sized], path)
        counts[sized] = -counts[sized]
    wrong = (counts < 0) | (counts > block.ends[rows] - block.at[rows])
    block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: cut short")
    return np.where(block.failed[rows], 0, counts)


def _layout(owners: Integers, count: int) -> tuple[pa.Int32Array, pa.Int64Array]:
    """Returns the list offsets of `count` rows, and the indexes that bring their items into the rows' order."""
    offsets = offsets_array(np.bincount(owners, minlength=count))
    return offsets, indices_array(np.argsort(owners, kind="stable"))


def _flat(items: Sequence[Column], data_type: pa.DataType, order: pa.Int64Array) -> Column:
    """Returns the items as one column, in the given order."""
    return pa.concat_arrays(items).take(order) if items else nulls_of(data_type, 0)


def _spread(values: Column, present: Flags) -> Column:
    """Returns a column with the values in turn where `present` is true, and nulls elsewhere."""
    return values.take(pa.array(np.cumsum(present) - 1, pa.int64(), mask=~present))
