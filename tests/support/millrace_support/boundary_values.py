"""Values at the limits of every type of column, and beyond them: what a decoder is given, and what it makes of it.

A `Case` is one value of one type; `boundary_json`, `boundary_avro` and `boundary_protobuf` write it, alone and inside a
list, a map and a struct, as a `Sample`. A value that a column can't hold, or that not all readers show alike, is to
become a dead letter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import NamedTuple

import numpy as np

from millrace.times import EPOCH
from millrace_pipelines.warehouse.payload.types import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
)

LETTER = object()
"""In the place of a value: the record is to be a dead letter."""

RANDOM_CASES = 6
TURNS = (
    *("0100-03-01T00:00", "1582-10-04T00:00", "1582-10-10T00:00", "1582-10-15T00:00", "1883-11-18T17:00"),
    *("1900-01-01T00:00", "2000-02-29T00:00", "2016-12-31T23:59:59.999999", "2038-01-19T03:14:07"),
)
"""Times at which calendars, clocks or counters change."""
LONG_TEXT = 100_000
DECIMALS = ((1, 0), (1, 1), (9, 2), (18, 0), (19, 4), (38, 0), (38, 38))


class Case(NamedTuple):
    """A value as a writer has it (a number, text or bytes), and as the column is to have it, or LETTER."""

    written: object
    expected: object


class Sample(NamedTuple):
    """The value of a record, and what its row has in one column, null in all others; LETTER for a dead letter."""

    value: bytes | None
    column: str
    expected: object


class Format(NamedTuple):
    """The declaration of a table, and its records."""

    schema: Mapping[str, object]
    samples: Sequence[Sample]


PLACES = ("", "_list", "_map", "_struct")
NO_TEXTS = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80")


def inside(place: str, expected: object) -> object:
    """Returns what the column of a place has for a value: the value itself, or a list, a map or a struct around it."""
    if expected is LETTER:
        return LETTER
    around: Mapping[str, object] = {"": expected, "_list": [expected], "_map": [("k", expected)]}
    return around.get(place, {"x": expected})


def _chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311  # chosen values, no secrets


def integers(bits: int, seed: int) -> Iterator[Case]:
    """Yields integers around the limits of so many bits."""
    limit, chance = 1 << bits - 1, _chance(seed)
    inside = [-limit, 1 - limit, -1, 0, 1, 127, 128, 1 << 20, limit - 2, limit - 1]
    inside += [chance.randrange(-limit, limit) >> chance.randrange(bits) for _ in range(RANDOM_CASES)]
    yield from (Case(number, number) for number in inside)
    yield from (Case(number, LETTER) for number in (-limit - 1, limit))


def doubles(seed: int) -> Iterator[Case]:
    """Yields finite numbers of 64 bits, and those that are not finite."""
    chance = _chance(seed)
    limits = [
        0.0,
        5e-324,
        2.225073858507201e-308,
        2.2250738585072014e-308,
        math.ulp(1.0),
        1 / 3,
        0.1,
        1e22,
        2.0**53 + 2,
    ]
    limits += [1.7976931348623157e308, *(chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300) for _ in range(6))]
    for number in limits:
        yield Case(number, number)
        yield Case(-number, -number)
    yield from (Case(number, number) for number in (math.nan, math.inf, -math.inf))


def floats(seed: int) -> Iterator[Case]:
    """Yields numbers of 32 bits."""
    chance = _chance(seed)
    limits = [0.0, 1.401298464324817e-45, 1.1754942106924411e-38, 1.1754943508222875e-38, 3.4028234663852886e38]
    limits += [float(np.float32(number)) for number in (0.1, 1 / 3, *(chance.uniform(-1e30, 1e30) for _ in range(4)))]
    for number in limits:
        yield Case(number, number)
        yield Case(-number, -number)
    yield from (Case(number, number) for number in (math.nan, math.inf, -math.inf))


def texts(seed: int) -> Iterator[Case]:
    """Yields texts of all planes, with all that separates or ends lines and texts."""
    chance = _chance(seed)
    found = [
        "",
        " ",
        "\0",
        "a\0b",
        "\x01\x1f\x7f",
        "é",
        "e\u0301",
        "\u2028\u2029\x85",
        "\ufeff",
        "\ufffd",
        "\ufffe\uffff",
    ]
    found += ["\ud7ff\ue000", "𝄞", "\U0010ffff\U00010000", "'\"\\\n\t\r/", "null", "NaN", "\u202eabc", "x" * LONG_TEXT]
    found += ["".join(chr(chance.choice((32, 0x80, 0x800, 0x10000)) + chance.randrange(32)) for _ in range(9))]
    yield from (Case(text, text) for text in found)


def octets(seed: int) -> Iterator[Case]:
    """Yields bytes."""
    found = [b"", b"\0", bytes(range(256)), b"\xff" * LONG_TEXT, b"\xed\xa0\x80", _chance(seed).randbytes(33)]
    yield from (Case(one, one) for one in found)


def moments(seed: int) -> Iterator[Case]:
    """Yields microseconds since 1970, around the limits of the calendar, its changes and leap seconds."""
    chance = _chance(seed)
    inside = [_microseconds(datetime.fromisoformat(f"{text}+00:00")) for text in TURNS]
    inside += [FIRST_MICROSECOND, FIRST_MICROSECOND + 1, -1_000_001, -1, 0, 1, LAST_MICROSECOND - 1, LAST_MICROSECOND]
    inside += [chance.randrange(FIRST_MICROSECOND, LAST_MICROSECOND) for _ in range(RANDOM_CASES)]
    yield from (Case(number, EPOCH + timedelta(microseconds=number)) for number in inside)
    beyond = (FIRST_MICROSECOND - 1, LAST_MICROSECOND + 1, -(2**63), 2**63 - 1, 1_700_000_000_000_000_000)
    yield from (Case(number, LETTER) for number in beyond)


def days(seed: int) -> Iterator[Case]:
    """Yields days since 1970, around the limits of the calendar."""
    chance = _chance(seed)
    inside = [FIRST_DAY, FIRST_DAY + 1, -141_432, -25_567, -1, 0, 1, 11_016, LAST_DAY - 1, LAST_DAY]
    inside += [chance.randrange(FIRST_DAY, LAST_DAY) for _ in range(RANDOM_CASES)]
    yield from (Case(number, date.fromordinal(number - FIRST_DAY + 1)) for number in inside)
    yield from (Case(number, LETTER) for number in (FIRST_DAY - 1, LAST_DAY + 1, -(2**31), 2**31 - 1))


def decimals(precision: int, scale: int, seed: int) -> Iterator[Case]:
    """Yields decimals of so many digits, by their unscaled values."""
    limit, chance = 10**precision, _chance(seed)
    inside = [0, 1, -1, limit - 1, 1 - limit, *(chance.randrange(1 - limit, limit) for _ in range(RANDOM_CASES))]
    yield from (Case(number, Decimal(f"{number}E-{scale}")) for number in inside)
    yield from (Case(number, LETTER) for number in (limit, -limit, 10 * limit))


def booleans() -> Sequence[Case]:
    """Returns both."""
    return Case(False, False), Case(True, True)


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
