"""The fields of a message, and a walk over its bytes that trusts no length.

    walk = walker(fields, is_flexible=True)
    body = walk(body, elements_max)     ValueError where the bytes are no such message

A native decoder allocates room for as many elements as an array claims to have before it reads one, so five bytes that
claim four billion would end the process. After the walk every array is known to have its bytes, and no array or string
is null where it must not be. Fields of fixed size cost only an addition, so the walk over a small request takes about
two µs.

A newer client may send tagged fields that a schema does not have. A broker passes over them, but kio's decoder can't.
So the walk notes where they are and returns the message without them, with the counts and sizes around them corrected.

A length is the varint of one more in flexible versions, else i16 for strings and i32 for bytes and arrays (KIP-482).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from typing import NamedTuple

from millrace.wire.encoder import INT16, INT32, MAX_STRING_BYTES, unsigned_varint

Buffer = bytes | bytearray | memoryview
Walk = Callable[[Buffer, int], Buffer]
# A replacement of bytes: (start, end, the bytes that take their place).
_Edit = tuple[int, int, bytes]
# Goes from the position of a value to the one behind it; the first list holds how many elements are still allowed.
_Step = Callable[[Buffer, int, list[int], list[_Edit]], int]

MAX_VARINT_BYTES = 5
FIXED_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "uint64": 8, "timedelta_i64": 8, "datetime_i64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip


class SchemaField(NamedTuple):
    """A field of a message; `kind` is its type in the protocol. A struct has `fields`, and its name is `struct`."""

    name: str
    kind: str
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    fields: tuple[SchemaField, ...] = ()
    struct: str = ""
    default: object = MISSING  # MISSING where the protocol has none


def walker(fields: Sequence[SchemaField], *, is_flexible: bool) -> Walk:
    """Returns a function that checks a message's bytes, and returns them without tagged fields not among `fields`."""
    step = _struct(fields, is_flexible=is_flexible)

    def walk(body: Buffer, elements_max: int) -> Buffer:
        edits: list[_Edit] = []
        try:
            end = step(body, 0, [elements_max], edits)
        except (IndexError, struct.error):
            end = len(body) + 1
        if end > len(body):
            raise ValueError(f"it does not end within its {len(body)} bytes")
        return _edited(body, edits) if edits else body

    return walk


def _edited(body: Buffer, edits: list[_Edit]) -> bytes:
    parts: list[Buffer] = []
    position = 0
    for start, end, instead in sorted(edits):
        parts += (body[position:start], instead)
        position = end
    return b"".join((*parts, body[position:]))


def _struct(fields: Sequence[SchemaField], *, is_flexible: bool) -> _Step:
    steps: list[tuple[int, _Step]] = []
    skipped = 0
    for one in fields:
        if one.tag is None:
            if one.kind in FIXED_BYTES and not one.is_array:
                skipped += FIXED_BYTES[one.kind]
            else:
                steps.append((skipped, _field(one, is_flexible=is_flexible)))
                skipped = 0
    if is_flexible:
        steps.append((skipped, _tagged({one.tag: one for one in fields if one.tag is not None})))
        skipped = 0

    def step(body: Buffer, position: int, left: list[int], edits: list[_Edit]) -> int:
        for fixed_bytes, inner in steps:
            position = inner(body, position + fixed_bytes, left, edits)
        return position + skipped

    return step


def _field(one: SchemaField, *, is_flexible: bool) -> _Step:
    if one.is_array:
        return _array(one, is_flexible=is_flexible)
    return _one(one, is_flexible=is_flexible)


def _one(one: SchemaField, *, is_flexible: bool) -> _Step:
    if one.kind in FIXED_BYTES:
        size_bytes = FIXED_BYTES[one.kind]
        return lambda _, position, *__: position + size_bytes
    if one.kind == "struct":
        inner = _struct(one.fields, is_flexible=is_flexible)
        return _nullable(inner) if one.is_nullable and not one.is_array else inner
    is_nullable = one.is_nullable and not one.is_array
    return _compact(one, is_nullable=is_nullable) if is_flexible else _sized(one, is_nullable=is_nullable)


def _nullable(inner: _Step) -> _Step:
    """Returns the function (step) that checks a struct which may be null, as the byte before it says."""

    def step(body: Buffer, position: int, left: list[int], edits: list[_Edit]) -> int:
        return inner(body, position + 1, left, edits) if body[position] < 0x80 else position + 1

    return step


def _compact(one: SchemaField, *, is_nullable: bool) -> _Step:
    longest = MAX_STRING_BYTES if one.kind == "string" else sys.maxsize

    def step(body: Buffer, position: int, _: list[int], __: list[_Edit]) -> int:
        length = body[position]
        position += 1
        if length > 0x7F:
            length, position = read_varint(body, position - 1)
            if length > longest + 1:
                raise ValueError(f"{one.name} has length {length - 1}")
        if length:
            return position + length - 1
        if is_nullable:
            return position
        raise ValueError(f"{one.name} is null")

    return step


def _sized(one: SchemaField, *, is_nullable: bool) -> _Step:
    form = INT16 if one.kind == "string" else INT32

    def step(body: Buffer, position: int, _: list[int], __: list[_Edit]) -> int:
        (length,) = form.unpack_from(body, position)
        if length >= 0:
            return position + form.size + int(length)
        if is_nullable and length == -1:
            return position + form.size
        raise ValueError(f"{one.name} has length {length}")

    return step


def _array(one: SchemaField, *, is_flexible: bool) -> _Step:
    element, element_bytes = _one(one, is_flexible=is_flexible), _least_bytes(one, is_flexible=is_flexible)
    is_fixed = one.kind in FIXED_BYTES

    def step(body: Buffer, position: int, left: list[int], edits: list[_Edit]) -> int:
        if is_flexible:
            count = body[position] - 1
            position += 1
            if count > 0x7E:
                count, position = read_varint(body, position - 1)
                count -= 1
        else:
            (count,) = INT32.unpack_from(body, position)
            position += INT32.size
        if count < 0:
            if count == -1 and one.is_nullable:
                return position
            raise ValueError(f"{one.name} is null" if count == -1 else f"{one.name} has length {count}")
        if count * element_bytes > len(body) - position:
            raise ValueError(f"{one.name} can't have {count} elements in {len(body) - position} bytes")
        left[0] -= count
        if left[0] < 0:
            raise ValueError(f"the message has too many elements, counted up to {one.name}")
        if is_fixed:
            return position + count * element_bytes
        for _ in range(count):
            position = element(body, position, left, edits)
        return position

    return step


def _tagged(fields: dict[int, SchemaField]) -> _Step:
    steps = {tag: _field(one, is_flexible=True) for tag, one in fields.items()}

    def step(body: Buffer, position: int, left: list[int], edits: list[_Edit]) -> int:
        if not body[position]:
            return position + 1
        start = position
        count, position = read_varint(body, position)
        left[0] -= count
        if left[0] < 0:
            raise ValueError(f"the message has too many elements, {count} tagged fields included")
        behind_count, known = position, count
        for _ in range(count):
            tag, size_position = read_varint(body, position)
            size_bytes, content = read_varint(body, size_position)
            end = content + size_bytes
            if tag in steps:
                _known(steps[tag], body, (size_position, content, end), left, edits)
            else:
                edits.append((position, end, b""))
                known -= 1
            position = end
        if known < count:
            edits.append((start, behind_count, unsigned_varint(known)))
        return position

    return step


def _known(step: _Step, body: Buffer, place: tuple[int, int, int], left: list[int], edits: list[_Edit]) -> None:
    """Checks a tagged field of the schema by `step`; `place` has the positions of its size, its content and its end.

    Raises ValueError where the content does not have that size.
    """
    size_position, content, end = place
    before = len(edits)
    if step(body, content, left, edits) != end:
        raise ValueError(f"a tagged field does not have its {end - content} bytes")
    if len(edits) > before:
        longer_bytes = sum(len(instead) - (cut_end - cut_start) for cut_start, cut_end, instead in edits[before:])
        edits.append((size_position, content, unsigned_varint(end - content + longer_bytes)))


def read_varint(body: Buffer, position: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position after it.

    Raises ValueError where it is too long, IndexError where the bytes end within it.
    """
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a variable-length integer is longer than 32 bits")


def _least_bytes(one: SchemaField, *, is_flexible: bool) -> int:
    """Returns the least number of bytes that a value of a field (in an array: one element) can have."""
    if one.kind in FIXED_BYTES:
        return FIXED_BYTES[one.kind]
    if one.kind != "struct":
        return 1 if is_flexible else INT16.size
    if one.is_nullable and not one.is_array:
        return 1
    inner = [field for field in one.fields if field.tag is None]
    lengths = 1 if is_flexible else INT32.size
    return is_flexible + sum(
        lengths if field.is_array else _least_bytes(field, is_flexible=is_flexible) for field in inner
    )
