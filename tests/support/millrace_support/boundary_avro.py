"""Boundary values in Avro's binary encoding, written byte by byte: no library writes what a column can't hold."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from millrace.records.varint import encode_varint
from millrace_support.boundary_values import (
    DECIMALS,
    LETTER,
    NO_TEXTS,
    PLACES,
    Case,
    Format,
    Sample,
    booleans,
    days,
    decimals,
    doubles,
    floats,
    inside,
    integers,
    moments,
    octets,
    texts,
)

Encoded = tuple[bytes, object]
NULL, PRESENT = encode_varint(0), encode_varint(1)
SYMBOLS = ("A", "B")
PER_SECOND = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}


def avro(seed: int) -> Format:
    """Returns a table of values in Avro, without a registry's frame."""
    kinds = _kinds(seed)
    names = [name + place for place in PLACES for name in kinds]
    fields = [
        {"name": name + place, "type": ["null", _around(place, name + place, kind)]}
        for place in PLACES
        for name, (kind, _) in kinds.items()
    ]
    schema = {"format": "avro", "schema_text": json.dumps({"type": "record", "name": "R", "fields": fields})}
    samples = [
        Sample(_record(names, name + place, _enclosed(place, encoded)), name + place, inside(place, expected))
        for place in PLACES
        for name, (_, cases) in kinds.items()
        for encoded, expected in cases
    ]
    return Format(schema, [*samples, *_nested(names)])


def _kinds(seed: int) -> Mapping[str, tuple[object, Sequence[Encoded]]]:
    """Returns by name each type of the schema, and its values encoded."""
    kinds: dict[str, tuple[object, Sequence[Encoded]]] = {
        "integer": ("int", _encoded(integers(32, seed), _number)),
        "long": ("long", _encoded((case for case in integers(64, seed) if case.expected is not LETTER), _number)),
        "float": ("float", _encoded(floats(seed), partial(struct.pack, "<f"))),
        "double": ("double", _encoded(doubles(seed), partial(struct.pack, "<d"))),
        "boolean": ("boolean", [*_encoded(booleans(), lambda one: bytes([bool(one)])), (b"\x02", LETTER)]),
        "string": ("string", [*_encoded(texts(seed), _text), *((_bytes(one), LETTER) for one in NO_TEXTS)]),
        "binary": ("bytes", _encoded(octets(seed), _bytes)),
        "date": ({"type": "int", "logicalType": "date"}, _encoded(days(seed), _number)),
        "fixed": ("Fixed", [(b"\0\xff\xed\xa0", b"\0\xff\xed\xa0"), (bytes(4), bytes(4))]),
        "enum": ("Enum", [(_number(place), symbol) for place, symbol in enumerate(SYMBOLS)] + [(_number(2), LETTER)]),
    }
    for unit, per_second in PER_SECOND.items():
        kind = {"type": "long", "logicalType": f"timestamp-{unit}"}
        kinds[f"moment_{unit}"] = kind, list(_moments(per_second, seed))
    for precision, scale in DECIMALS:
        number = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        found = _encoded(decimals(precision, scale, seed), lambda number: _bytes(_big_endian(number)))
        kinds[f"decimal_{precision}_{scale}"] = number, [*found, (_bytes(b""), _zero(scale))]
    return kinds


def _zero(scale: int) -> object:
    return next(case.expected for case in decimals(38, scale, 0) if case.written == 0)


def _moments(per_second: int, seed: int) -> Iterator[Encoded]:
    for case in moments(seed):
        number = int(str(case.written)) * per_second
        whole, rest = divmod(number, 1_000_000)
        if rest == 0 and -(2**63) <= whole < 2**63:
            yield _number(whole), case.expected
    if per_second > 1_000_000:
        yield from ((_number(number), LETTER) for number in (1, -1, 999))
    yield from ((_number(number), LETTER) for number in (-(2**63), 2**63 - 1) if per_second <= 1_000_000)


def _encoded(cases: Iterator[Case] | Sequence[Case], encode: Callable[..., bytes]) -> list[Encoded]:
    return [(encode(case.written), case.expected) for case in cases]


def _number(number: int) -> bytes:
    return encode_varint(number)


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(one: bytes) -> bytes:
    return encode_varint(len(one)) + one


def _big_endian(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _around(place: str, name: str, kind: object) -> object:
    """Returns a type, or one around it; a named type is defined where it is met first."""
    if kind == "Fixed" and not place:
        kind = {"type": "fixed", "name": "Fixed", "size": 4}
    if kind == "Enum" and not place:
        kind = {"type": "enum", "name": "Enum", "symbols": list(SYMBOLS)}
    return {
        "": kind,
        "_list": {"type": "array", "items": kind},
        "_map": {"type": "map", "values": kind},
        "_struct": {"type": "record", "name": f"S{name}", "fields": [{"name": "x", "type": kind}]},
    }[place]


def _enclosed(place: str, encoded: bytes) -> bytes:
    """Returns a value as the only item of an array or a map, or as a record."""
    end = encode_varint(0)
    return {
        "": encoded,
        "_list": encode_varint(1) + encoded + end,
        "_map": encode_varint(1) + _text("k") + encoded + end,
        "_struct": encoded,
    }[place]


def _record(names: Sequence[str], column: str, encoded: bytes) -> bytes:
    return b"".join(PRESENT + encoded if name == column else NULL for name in names)


def _nested(names: Sequence[str]) -> Iterator[Sample]:
    """Yields empty lists and maps, keys that are no text or there twice, blocks, and records that end elsewhere."""
    item, end = _number(7), encode_varint(0)
    sized = encode_varint(-2) + encode_varint(2 * len(item)) + item * 2 + end
    entry = encode_varint(1) + _text("k") + item
    for column, encoded, expected in (
        ("long_list", end, []),
        ("long_map", end, []),
        ("long_list", sized, [7, 7]),
        ("long_list", encode_varint(1) + item + encode_varint(1) + item + end, [7, 7]),
        ("long_map", entry + entry + end, LETTER),
        (
            "long_map",
            encode_varint(1) + _text("") + item + encode_varint(1) + _text("\0𝄞") + item + end,
            [("", 7), ("\0𝄞", 7)],
        ),
        ("long_list", encode_varint(2**62), LETTER),
        ("long_list", encode_varint(-(2**63)), LETTER),
        ("string", encode_varint(-1), LETTER),
        ("string", encode_varint(2**40), LETTER),
    ):
        yield Sample(_record(names, column, encoded), column, expected)
    for octets_of_key in NO_TEXTS:
        yield Sample(
            _record(names, "long_map", encode_varint(1) + _bytes(octets_of_key) + item + end), "long_map", LETTER
        )
    whole = _record(names, "long", item)
    yield from (Sample(value, "long", LETTER) for value in (b"", whole[:-1], whole + b"\0", b"\x04" + whole[1:]))
    yield from chain((Sample(None, "long", None), Sample(whole, "long", 7)))
