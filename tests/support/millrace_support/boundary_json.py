"""Boundary values in JSON, for each of the readers that a declaration chooses: the kernel, Arrow's, and Python's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from millrace.times import EPOCH
from millrace_pipelines.warehouse.payload.types import FIRST_MICROSECOND, LAST_MICROSECOND
from millrace_support.boundary_values import (
    DECIMALS,
    LETTER,
    NO_TEXTS,
    PLACES,
    Case,
    Format,
    Sample,
    days,
    decimals,
    doubles,
    floats,
    inside,
    integers,
    moments,
    texts,
)

PLAIN = {name: name for name in ("integer", "long", "float", "double", "boolean", "string", "date")} | {
    "moment": "timestamp"
}
NUMBERS = {f"decimal_{precision}_{scale}": f"decimal({precision},{scale})" for precision, scale in DECIMALS}
OFFSETS = (0, 1, -1, 60 * 14, -60 * 12, 23 * 60 + 59)
DEPTH = 20


def plain_json(seed: int) -> Format:
    """Returns a table whose declaration the kernel reads, where there is one."""
    return Format(_declared(PLAIN, [""]), [*_samples(PLAIN, [""], seed), *_documents()])


def nested_json(seed: int) -> Format:
    """Returns a table for Arrow's reader: with decimals, lists and structs, but no date inside of another type."""
    places = ["", "_list", "_struct"]
    schema = _declared(PLAIN | NUMBERS, places, but=("date_list", "date_struct"))
    samples = [one for one in _samples(PLAIN | NUMBERS, places, seed) if one.column not in ("date_list", "date_struct")]
    return Format(schema, [*samples, *_nested()])


def mapped_json(seed: int) -> Format:
    """Returns a table for Python's reader: with maps too."""
    types = PLAIN | NUMBERS
    return Format(_declared(types, PLACES), [*_samples(types, PLACES, seed), *_nested(), *_maps(), *_documents()])


def _declared(types: Mapping[str, str], places: Sequence[str], but: Sequence[str] = ()) -> Mapping[str, object]:
    fields: list[object] = []
    for place in places:
        fields += [{"name": name + place, "type": _around(place, kind)} for name, kind in types.items()
                   if name + place not in but]  # fmt: skip
    if "_list" in places:
        deep: object = "long"
        for _ in range(DEPTH):
            deep = _around("_list", deep)
        fields += [{"name": "deep", "type": deep}]
    return {"fields": fields}


def _around(place: str, kind: object) -> object:
    return {
        "": kind,
        "_list": {"type": "array", "elementType": kind},
        "_map": {"type": "map", "keyType": "string", "valueType": kind},
        "_struct": {"type": "struct", "fields": [{"name": "x", "type": kind}]},
    }[place]


def _samples(types: Mapping[str, str], places: Sequence[str], seed: int) -> Iterator[Sample]:
    for place in places:
        before, behind = {"": (b"", b""), "_list": (b"[", b"]"), "_map": (b'{"k":', b"}"), "_struct": (b'{"x":', b"}")}[
            place
        ]
        for name in types:
            for literal, expected in _literals(name, seed):
                value = b'{"%s":%s}' % ((name + place).encode(), before + literal + behind)
                yield Sample(value, name + place, inside(place, expected))


def _literals(name: str, seed: int) -> Iterator[tuple[bytes, object]]:
    """Yields values of a type as JSON, with what a column has of them."""
    yield b"null", None
    if name.startswith("decimal"):
        precision, scale = map(int, name.split("_")[1:])
        yield from _decimals(precision, scale, seed)
    elif name in ("integer", "long"):
        yield from _written(integers(32 if name == "integer" else 64, seed))
        yield from ((literal, LETTER) for literal in (b"1.0", b"1e2", b"00", b"+1", b'"1"', b"true", b"1" * 400))
        yield b"-0", 0
    elif name in ("float", "double"):
        yield from _floating(floats(seed) if name == "float" else doubles(seed), is_single=name == "float")
    elif name == "boolean":
        yield from ((b"true", True), (b"false", False), (b"1", LETTER), (b'"true"', LETTER), (b"True", LETTER))
    elif name == "string":
        yield from _texts(seed)
    elif name == "date":
        yield from _days(seed)
    else:
        yield from _times(seed)


def _written(cases: Iterator[Case]) -> Iterator[tuple[bytes, object]]:
    yield from ((str(case.written).encode(), case.expected) for case in cases)


def _decimals(precision: int, scale: int, seed: int) -> Iterator[tuple[bytes, object]]:
    for case in decimals(precision, scale, seed):
        digits = str(abs(int(str(case.written)))).rjust(scale + 1, "0")
        text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}".rstrip(".")
        sign = "-" if int(str(case.written)) < 0 else ""
        yield (sign + text).encode(), case.expected
        yield f'"{sign}{text}"'.encode(), case.expected
    yield f"0.{'0' * scale}1".encode(), LETTER  # finer than the scale
    yield from ((literal, LETTER) for literal in (b'"NaN"', b'"Infinity"', b"NaN", b'""', b'" "', b"true"))


def _floating(cases: Iterator[Case], *, is_single: bool) -> Iterator[tuple[bytes, object]]:
    for case in cases:
        number = float(str(case.written))
        literal = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(
            number, "NaN" if math.isnan(number) else repr(number)
        )
        yield literal.encode(), case.expected if math.isfinite(number) else LETTER
    yield from (
        (b"1e400", LETTER),
        (b"-1e400", LETTER),
        (b"1e-400", 0.0),
        (b"-1e-400", -0.0),
        (b"-0", -0.0),
        (b"7", 7.0),
    )
    yield from ((literal, LETTER) for literal in (b'"1"', b"true", b"inf", b"1.", b".5", b"0x10", b"1_0"))
    yield b"9007199254740993", 9007199254740992.0
    if is_single:  # halfway between two of them, if it is rounded to 64 bits first
        yield b"1.00000017881393432617187499", 1.0000001192092896
        yield from (
            (b"3.4028235677973362e38", 3.4028234663852886e38),
            (b"3.4028235677973367e38", LETTER),
            (b"1e39", LETTER),
        )


def _texts(seed: int) -> Iterator[tuple[bytes, object]]:
    for case in texts(seed):
        for escapes in (True, False):
            yield json.dumps(case.written, ensure_ascii=escapes).encode(), case.expected
    yield from (
        (f'"{escape}"'.encode(), LETTER) for escape in (r"\ud800", r"\udc00", r"\ud800\ud800", r"\udc00\ud800", r"\x41")
    )
    yield from ((b'"' + octets + b'"', LETTER) for octets in NO_TEXTS)
    yield from ((b'"a\nb"', LETTER), (b'"a\0b"', LETTER), (b'"open', LETTER), (b"1", LETTER), (b"[]", LETTER))


def _days(seed: int) -> Iterator[tuple[bytes, object]]:
    for case in days(seed):
        if case.expected is not LETTER:
            yield f'"{case.expected}"'.encode(), case.expected
    for text in (
        "0000-12-31",
        "0000-01-01",
        "-0001-01-01",
        "10000-01-01",
        "+10000-01-01",
        "1900-02-29",
        "2000-13-01",
        "",
    ):
        yield f'"{text}"'.encode(), LETTER


def _times(seed: int) -> Iterator[tuple[bytes, object]]:
    for number, case in enumerate(moments(seed)):
        if case.expected is LETTER:
            continue
        offset = OFFSETS[number % len(OFFSETS)]
        local = int(str(case.written)) + offset * 60_000_000
        if FIRST_MICROSECOND <= local <= LAST_MICROSECOND:
            zone = f"{'+' if offset >= 0 else '-'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
            text = (EPOCH + timedelta(microseconds=local)).replace(tzinfo=None).isoformat()
            yield f'"{text}{zone}"'.encode(), case.expected
            yield f'"{text.replace("T", " ")}"'.encode(), EPOCH + timedelta(microseconds=local)
    first = datetime(1, 1, 1, tzinfo=UTC)
    yield b'"0000-12-31T23:00:00-01:00"', first
    yield b'"0001-01-01T10:00:00+10:00"', first
    for text in ("0001-01-01T00:00:00+00:01", "0000-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999-00:01"):
        yield f'"{text}"'.encode(), LETTER
    for text in (
        "2016-12-31T23:59:60Z",
        "2016-12-31T24:00:00Z",
        "2016-12-31T23:59:59.1234567Z",
        "10000-01-01T00:00:00Z",
    ):
        yield f'"{text}"'.encode(), LETTER
    yield b"0", LETTER


def _nested() -> Iterator[Sample]:
    """Yields nulls and empty lists within one another."""
    for text, column, expected in (
        ('{"long_list": []}', "long_list", []),
        ('{"long_list": [null, 1, null]}', "long_list", [None, 1, None]),
        ('{"long_struct": {}}', "long_struct", {"x": None}),
        ('{"long_struct": {"x": null, "y": 1}}', "long_struct", {"x": None}),
        ('{"long_list": null}', "long_list", None),
        ('{"long_list": [[1]]}', "long_list", LETTER),
        ('{"long_struct": []}', "long_struct", LETTER),
        ('{"long_struct": {"x": 1, "x": 1}}', "long_struct", LETTER),
        ('{"deep": %s}' % ("[" * DEPTH + "7" + "]" * DEPTH), "deep", _deep(7)),
        ('{"deep": %s}' % ("[" * (DEPTH - 1) + "]" * (DEPTH - 1)), "deep", _deep(None)),
    ):
        yield Sample(text.encode(), column, expected)


def _deep(value: object) -> object:
    """Returns lists around a number, or without one around an empty list."""
    found: object = [] if value is None else [value]
    for _ in range(DEPTH - 1 - (value is None)):
        found = [found]
    return found


def _maps() -> Iterator[Sample]:
    for text, expected in (
        ("{}", []),
        ('{"": 1}', [("", 1)]),
        ('{"b": 1, "a": null}', [("b", 1), ("a", None)]),
        ('{"\\u0000": 1, "𝄞": 2}', [("\0", 1), ("𝄞", 2)]),
        ('{"a": 1, "a": 2}', LETTER),
        ('{"a": 1, "\\u0061": 2}', LETTER),
        ('{"\\ud800": 1}', LETTER),
        ('{"\\ud800": 1, "\\ud800": 1}', LETTER),
        ('{"\\ud800": "x"}', LETTER),
        ("[]", LETTER),
    ):
        yield Sample(f'{{"long_map": {text}}}'.encode(), "long_map", expected)


def _documents() -> Iterator[Sample]:
    """Yields values that are no objects, or not one; and a tombstone."""
    for value in (
        b"",
        b" ",
        b"null",
        b"[]",
        b'"x"',
        b"{} {}",
        b"{}x",
        b"\xef\xbb\xbf{}",
        b'{"long":1',
        b'{"long":1,}',
        b"\xff",
    ):
        yield Sample(value, "long", LETTER)
    yield from (
        Sample(b'{"long":1,"long":1}', "long", LETTER),
        Sample(rb'{"\ud800":1,"\ud800":1}', "long", LETTER),
        Sample(rb'{"long":1,"\ud800":1}', "long", LETTER),
        Sample(b"\r\n\t {} ", "long", None),
        Sample(None, "long", None),
    )
