"""JSON objects of declared fields, some valid and some broken.

    values = HostileJson(random).values(100)

Fields hold values at the limits of their types, sometimes values of other types, or nothing; keys occur twice or are
undeclared. A quarter of the values are then mutated by bytes that have a meaning in JSON.
"""

from __future__ import annotations

from random import Random

FIELDS = (
    (b"small", "i", True),
    (b"long", "l", False),
    (b"half", "f", False),
    (b"ratio", "d", False),
    (b"good", "b", False),
    (b"text", "s", False),
    (b"day", "D", False),
    (b"at", "t", False),
)
"""Name, the kernel's letter for the type, and whether the field is required."""

INTEGERS = ("0", "-0", "7", "-13", "2147483647", "-2147483648")
LONGS = ("2147483648", "123456789012345678", "9007199254740993", "9223372036854775807", "-9223372036854775808")
FRACTIONS = (
    *("0.0", "-0.0", "0.1", "21.5", "-1.25", "0.30000000000000004", "123456.789012345678", "0.1e1", "1E5", "1e-7"),
    *("2.5e+9", "1e22", "1e23", "16777217.0", "1.00000017881393432617187499", "1.00000017881393432617187501"),
)
BAD_NUMBERS = (
    *("2147483648", "-2147483649", "9223372036854775808", "1" + "0" * 30, "8.5e38", "3.4028236e38", "1e39", "1e-46"),
    *("4e-324", "1e308", "1e999", "1e-999", "1.7976931348623157e+308", "0." + "1" * 39, "1" * 41, "01"),
    *("1.", ".5", "+1", "-", "1e", "1e+", "0x10", "NaN", "Infinity", "-Infinity", "Inf"),
)
TEXTS = (
    *(b"", b"x", b"caf\xc3\xa9", b"\xe6\x97\xa5", b"\xf0\x9f\x9a\x82", b"\x7f", b"NaN", b"a,b", b"{}", b"]", b"a" * 40),
    *(rb"\n", rb"\"", rb"\\", rb"\/", rb"\u00e9", rb"\u07FF", rb"\u0800", rb"\uffff", rb"\ud83d\ude82", rb"\u0000"),
)
BAD_TEXTS = (
    *(b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x1f", b"\n", b'"'),
    *(rb"\ud83d", rb"\ude82", rb"\ud83d\u0041", rb"\ude82\ude82", rb"\u12", rb"\u12g4", rb"\x", b"\\"),
)
DATES = (b"2013-01-02", b"2012-02-29", b"2000-02-29", b"1969-12-31", b"0001-01-01", b"9999-12-31", b"2012-12-31")
BAD_DATES = (
    *(b"2013-02-29", b"1900-02-29", b"0000-01-01", b"2013-13-01", b"2013-00-01", b"2013-04-31", b"2013-01-00"),
    *(b"2013-1-2", b"20130102", b"2013/01/02", b"-013-01-02"),
)
TIMES = (b"T05:00:00Z", b" 23:59:59", b"T00:00:00.1Z", b"T12:30:15.123456", b" 00:00:00.000001Z")
BAD_TIMES = (
    *(b"", b"T12:30:15.1234567Z", b"T24:00:00Z", b"T23:60:00Z", b"T23:00:60Z", b"T05:00Z", b"T05Z", b"T05:00:00+02:00"),
    *(b"T05:00:00.Z", b"t05:00:00z", b"T05:00:00ZZ", b"_05:00:00", b"T05.00:00"),
)
WORDS = (b"true", b"false", b"null")
BAD_WORDS = (b"nul", b"True", b"[]", b"{}", b"nan")
SPACES = (b" ", b"\n", b"\t \r", b"\x0b")
SIGNIFICANT = b'{}[]:,"\\ \n0159-+.eEtfnu\x00\x1f\x80\xc3\xff/NIa'
MAX_DEPTH = 40


class HostileJson:
    """Makes values from one random source; the same source gives the same values."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def values(self, count: int) -> list[bytes]:
        """Returns `count` values, about half of them broken."""
        return [self._value() for _ in range(count)]

    def _is_rare(self) -> bool:
        return self._chance.random() < 0.04

    def _value(self) -> bytes:
        fields = [field for field in FIELDS if field[-1] or self._chance.random() < 0.8]
        members = [self._member(name, self._of_type(kind)) for name, kind, _ in fields]
        if self._chance.random() < 0.2:
            members.append(self._member(self._key(), self._anything()))
        if self._chance.random() < 0.2:
            self._chance.shuffle(members)
        value = self._space() + b"{" + b",".join(members) + b"}" + self._space()
        return self._mutated(value) if self._chance.random() < 0.25 else value

    def _member(self, name: bytes, value: bytes) -> bytes:
        return self._space() + b'"' + name + b'"' + self._space() + b":" + self._space() + value + self._space()

    def _of_type(self, kind: str) -> bytes:
        if self._is_rare():
            return self._anything()
        if kind in "sDt":
            return b'"' + self._text(kind) + b'"'
        if kind == "b":
            return self._chance.choice(BAD_WORDS if self._is_rare() else WORDS)
        return self._number(kind).encode()

    def _number(self, kind: str) -> str:
        if self._is_rare():
            return self._chance.choice(BAD_NUMBERS)
        if kind in "fd" and self._chance.random() < 0.5:
            return repr(self._chance.gauss(0, 1))
        return self._chance.choice(INTEGERS + LONGS * (kind in "lfd") + FRACTIONS * (kind in "fd"))

    def _text(self, kind: str) -> bytes:
        if kind == "s":
            return b"".join(self._chance.choices(BAD_TEXTS if self._is_rare() else TEXTS, k=3))
        day = self._chance.choice(BAD_DATES if self._is_rare() else DATES)
        return day if kind == "D" else day + self._chance.choice(BAD_TIMES if self._is_rare() else TIMES)

    def _anything(self) -> bytes:
        kind = self._chance.randrange(4)
        if kind == 0:
            depth = self._chance.randrange(MAX_DEPTH)
            return b"[" * depth + self._chance.choice(WORDS) + b"]" * depth
        if kind == 1:
            return b"{" + self._member(self._key(), self._of_type("s")) + b"}"
        if kind == 2:
            return b"[" + b",".join(self._of_type(letter) for letter in "idsb") + b"]"
        return self._of_type(self._chance.choice("lsdtb"))

    def _key(self) -> bytes:
        return self._chance.choice((*(name for name, _, _ in FIELDS), *TEXTS, *BAD_TEXTS))

    def _space(self) -> bytes:
        return self._chance.choice(SPACES) if self._is_rare() else b""

    def _mutated(self, value: bytes) -> bytes:
        at = self._chance.randrange(len(value))
        until = at + self._chance.randrange(3)
        put = bytes(self._chance.choices(SIGNIFICANT, k=self._chance.randrange(3)))
        return self._chance.choice((value[:at] + put + value[until:], value[:at], value + put, value + value[at:]))
