"""Readers of Avro's types, each for all records at once; together they mirror a schema's tree.

    null boolean int long float double bytes string fixed enum      a column of their own
    record → struct    array → list    map → map                    repeated item by item, all records in step
    union of null and one type → that type, nullable

Source: Apache Avro 1.12, "Binary Encoding" and "Logical Types".
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.warehouse.payload.avro_block import Block, Integers
from millrace_pipelines.warehouse.payload.outcome import Places, Reason
from millrace_pipelines.warehouse.payload.types import list_of, map_of, type_text

MAX_ITEMS = 100_000
INT_LIMIT = 1 << 31
FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01
LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31


class Node(Protocol):
    """A type of the schema; `type` is its column's, None where it has none and is read over."""

    type: Any

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """An array with an element for each row."""
        ...


class Null:
    """No bytes at all."""

    type = None

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Nulls."""
        del block, path
        return pa.nulls(len(rows))


class Boolean:
    """One byte, 0 or 1."""

    type = pa.bool_()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Booleans."""
        octets = block.fixed(rows, 1, path)[:, 0]
        block.fail(rows, octets > 1, Reason.MALFORMED, f"field {path}: a boolean is 0 or 1")
        return pa.array(octets == 1)


class Int:
    """A zig-zag integer of 32 bits."""

    type: Any = pa.int32()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Integers."""
        numbers = block.varints(rows, path)
        unfit = (numbers < -INT_LIMIT) | (numbers >= INT_LIMIT)
        block.fail(rows, unfit, Reason.RANGE, f"field {path}: a number does not fit 32 bits")
        return pa.array(numbers.astype(np.int32))


class Date(Int):
    """Days since 1970-01-01."""

    type = pa.date32()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Dates."""
        return super().read(block, rows, path).cast(pa.date32())


class Long:
    """A zig-zag integer of 64 bits."""

    type: Any = pa.int64()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Integers."""
        return pa.array(block.varints(rows, path))


class Timestamp:
    """A long that counts milli-, micro- or nanoseconds; a column has microseconds, years 1 to 9999."""

    type = TIMESTAMP_TYPE

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Timestamps."""
        numbers = block.varints(rows, path)
        first, last = (limit * self._per_second // 1_000_000 for limit in (FIRST_MICROSECOND, LAST_MICROSECOND))
        beyond = (numbers < max(first, -(2**63))) | (numbers > min(last, 2**63 - 1))
        block.fail(rows, beyond, Reason.RANGE, f"field {path}: a time beyond the years 1 to 9999")
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

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Numbers; NaN and infinities as they are, for Avro has them."""
        octets = np.ascontiguousarray(block.fixed(rows, self._dtype.itemsize, path))
        return pa.array(octets.view(self._dtype)[:, 0])


class Binary:
    """Bytes behind their length."""

    type: Any = pa.binary()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Bytes."""
        return block.binary(rows, path)


class Text:
    """UTF-8 behind its length."""

    type: Any = pa.string()

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Texts."""
        octets = block.binary(rows, path)
        try:
            return octets.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_utf8(value) for value in octets.to_pylist()])
            block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: Invalid UTF8 sequence")
            return pc.if_else(pa.array(wrong), b"", octets).cast(pa.string())


class Fixed:
    """So many bytes."""

    type: Any = pa.binary()

    def __init__(self, width: int) -> None:
        self._width = width

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Bytes."""
        octets = np.ascontiguousarray(block.fixed(rows, self._width, path))
        return pa.array([row.tobytes() for row in octets], pa.binary())


class DecimalNumber:
    """The unscaled value in big-endian two's complement, in bytes or fixed."""

    def __init__(self, octets: Binary | Fixed, precision: int, scale: int) -> None:
        self.type, self._octets = pa.decimal128(precision, scale), octets
        self._limit, self._scale = 10**precision, scale

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Decimals."""
        found = self._octets.read(block, rows, path).to_pylist()
        numbers = [int.from_bytes(octets, "big", signed=True) for octets in found]
        wrong = np.array([not -self._limit < number < self._limit for number in numbers], np.bool_)
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: a number does not fit {type_text(self.type)}")
        kept = [0 if bad else number for number, bad in zip(numbers, wrong, strict=True)]
        return pa.array([_decimal(number, self._scale) for number in kept], self.type)


class Enum:
    """The place of a symbol among the schema's."""

    type: Any = pa.string()

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Symbols."""
        places = block.varints(rows, path)
        wrong = (places < 0) | (places >= len(self._symbols))
        block.fail(rows, wrong, Reason.RANGE, f"field {path}: no such symbol")
        indices: Any = pa.array(np.where(wrong, 0, places))
        return self._symbols.take(indices)


class Union:
    """The place of a branch, then its value; a column where there is one branch beside null."""

    def __init__(self, branches: Sequence[Node]) -> None:
        self._branches = branches
        present = [place for place, branch in enumerate(branches) if not isinstance(branch, Null)]
        self._place = present[0] if len(present) == 1 else None
        self.is_nullable = len(present) < len(branches)
        self.type = None if self._place is None else branches[self._place].type

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """The values of the one branch, null for the other."""
        chosen = block.varints(rows, path)
        wrong = (chosen < 0) | (chosen >= len(self._branches))
        block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: no such branch of a union")
        found: Any = pa.nulls(len(rows))
        for place, branch in enumerate(self._branches):
            mine = (chosen == place) & ~block.failed[rows]
            if isinstance(branch, Null) or not bool(mine.any()):
                continue
            values = branch.read(block, rows[mine], path)
            if place == self._place:
                found = values if bool(mine.all()) else _spread(values, mine)
        return found if self.type is None or found.type == self.type else pa.nulls(len(rows), self.type)


class Record:
    """Its fields, one after the other."""

    def __init__(self, fields: Sequence[tuple[str, Node]]) -> None:
        self.fields = fields
        self.columns = [pa.field(name, node.type, is_nullable(node)) for name, node in fields if node.type is not None]
        self.type = pa.struct(self.columns) if self.columns else None

    def arrays(self, block: Block, rows: Places, path: str) -> list[Any]:
        """A column for each field that has one."""
        within = f"{path}/" if path else ""
        read = [(node.type, node.read(block, rows, within + name)) for name, node in self.fields]
        return [array for data_type, array in read if data_type is not None]

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Structs."""
        arrays = self.arrays(block, rows, path)
        return pa.StructArray.from_arrays(arrays, fields=self.columns) if arrays else pa.nulls(len(rows))


class Array:
    """Blocks of items, each behind its count, up to a count of 0."""

    def __init__(self, items: Node) -> None:
        self._items = items
        self.type = None if items.type is None else list_of(items.type, nullable=is_nullable(items))

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Lists."""
        owners, items = _repeated(block, rows, path, lambda some: self._items.read(block, some, f"{path}/[]"))
        if self.type is None:
            return pa.nulls(len(rows))
        offsets, order = _layout(owners, len(rows))
        flat = pa.concat_arrays(items).take(order) if items else pa.nulls(0, self._items.type)
        lists: Any = pa.ListArray
        return lists.from_arrays(offsets, flat, type=self.type)


class Map:
    """As an array, each item a key and a value."""

    def __init__(self, values: Node) -> None:
        self._keys, self._values = Text(), values
        self.type = None if values.type is None else map_of(pa.string(), values.type, nullable=is_nullable(values))

    def read(self, block: Block, rows: Places, path: str) -> Any:
        """Maps; a key that is there twice is a flaw."""
        keys: list[Any] = []

        def read(some: Places) -> Any:
            keys.append(self._keys.read(block, some, f"{path}/key"))
            return self._values.read(block, some, f"{path}/value")

        owners, values = _repeated(block, rows, path, read)
        if self.type is None:
            return pa.nulls(len(rows))
        offsets, order = _layout(owners, len(rows))
        flat_keys = pa.concat_arrays(keys).take(order) if keys else pa.nulls(0, pa.string())
        flat_values = pa.concat_arrays(values).take(order) if values else pa.nulls(0, self._values.type)
        self._fail_doubled(block, rows, flat_keys, np.sort(owners), path)
        maps: Any = pa.MapArray
        return maps.from_arrays(offsets, flat_keys, flat_values, type=self.type)

    def _fail_doubled(self, block: Block, rows: Places, keys: Any, owners: Integers, path: str) -> None:
        encoded = keys.dictionary_encode()
        pairs = owners * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        unique, counts = np.unique(pairs, return_counts=True)
        wrong = np.zeros(len(rows), np.bool_)
        wrong[unique[counts > 1] // max(len(encoded.dictionary), 1)] = True
        block.fail(rows, wrong, Reason.DUPLICATE, f"field {path}: a key is there twice")


def is_nullable(node: Node) -> bool:
    """Whether a value of this type may be null."""
    return isinstance(node, Union) and node.is_nullable


def _repeated(block: Block, rows: Places, path: str, read: Any) -> tuple[Integers, list[Any]]:
    """Items of all rows in step: for each item the place of its row, and the items as they were read."""
    owners: list[Integers] = []
    items: list[Any] = []
    remaining = _counts(block, rows, path)
    while (active := np.flatnonzero(remaining > 0)).size:
        items.append(read(rows[active]))
        owners.append(active)
        if len(owners) >= MAX_ITEMS:
            block.fail(rows, remaining > 0, Reason.RANGE, f"field {path}: more than {MAX_ITEMS} items")
        remaining[active] -= 1
        again = active[remaining[active] == 0]
        remaining[again] = _counts(block, rows[again], path)
        remaining[block.failed[rows]] = 0
    return np.concatenate(owners) if owners else np.zeros(0, np.int64), items


def _counts(block: Block, rows: Places, path: str) -> Integers:
    """The count of each row's next block of items; behind a negative one stands the block's size in bytes."""
    counts = block.varints(rows, path)
    sized = np.flatnonzero(counts < 0)
    if sized.size:
        block.varints(rows[sized], path)
        counts[sized] = -counts[sized]
    wrong = (counts < 0) | (counts > block.ends[rows] - block.at[rows])
    block.fail(rows, wrong, Reason.MALFORMED, f"field {path}: cut short")
    return np.where(block.failed[rows], 0, counts)


def _layout(owners: Integers, count: int) -> tuple[Any, Any]:
    """Offsets of the rows' lists, and the order in which their items lie."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
    return pa.array(offsets, pa.int32()), pa.array(np.argsort(owners, kind="stable"))


def _spread(values: Any, present: Any) -> Any:
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimal(number: int, scale: int) -> Decimal:
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -scale))
