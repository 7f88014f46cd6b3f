"""Random requests of any API and version, made from the protocol's schemas and then damaged.

    fuzzer = RequestFuzzer(random, {key: api.versions for key, api in APIS.items()}, Words())
    frame = fuzzer.frame()          header and message, without the frame's size

Most values are those that a client would send (`random_words`), the others are limits of their type. Two of three
frames are damaged: flips, cuts, insertions, repetitions, the tail of another request, false lengths, overlong varints,
another header.

Structures of flexible versions may end with tagged fields that no schema has (`UnknownTags`), which a broker skips.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.encoder import unsigned_varint
from millrace.wire.kio_schemas import Direction, schema
from millrace.wire.schema import SchemaField
from millrace_support.random_words import Words

INTEGERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
}
UNTRUE_LENGTHS = (-(2**31), -2, -1, 0, 1, 2, 127, 128, 32767, 65536, 10**6, 2**28, 2**31 - 1)
MAX_REPEATED = 4000
MAX_PLAIN_BYTES = 0x7FFF


class Length(NamedTuple):
    """The place of a length in a message: a varint, or an integer of `size_bytes`."""

    position: int
    size_bytes: int
    is_varint: bool


class UnknownTags:
    """Makes tagged fields that no schema has, with random numbers."""

    def __init__(self, random: Random, likelihood: float) -> None:
        self._random = random
        self._likelihood = likelihood

    def beside(self, known: Sequence[SchemaField]) -> dict[int, bytes]:
        """Returns contents by tags that none of the structure's fields has; mostly none."""
        random = self._random
        if random.random() >= self._likelihood:
            return {}
        tags = {random.choice((random.randrange(8), random.randrange(1 << 31))) for _ in range(random.randint(1, 3))}
        return {tag: random.randbytes(random.choice((0, 1, 2, 200))) for tag in tags - {one.tag for one in known}}


class _Message:
    """One message as it is written, and the places of its lengths."""

    def __init__(self, random: Random, words: Words, unknown_tags: UnknownTags, *, is_flexible: bool) -> None:
        self.out = bytearray()
        self.lengths: list[Length] = []
        self._random = random
        self._words = words
        self._unknown_tags = unknown_tags
        self._is_flexible = is_flexible
        self._inside = ""

    def structure(self, fields: Sequence[SchemaField]) -> None:
        """Writes all fields in order, and some of those that are tagged."""
        for one in fields:
            if one.tag is None:
                self._field(one)
        if self._is_flexible:
            self.tagged(fields)

    def string(self, value: str | None) -> None:
        """Writes a string or null."""
        raw = None if value is None else value.encode("utf-8", "surrogatepass")
        self._sized(raw if self._is_flexible or raw is None else raw[:MAX_PLAIN_BYTES], INTEGERS["int16"])

    def tagged(self, fields: Sequence[SchemaField]) -> None:
        """Writes the end of a structure: some of its tagged fields."""
        unknown = self._unknown_tags.beside(fields)
        known = {one.tag: one for one in fields if one.tag is not None and self._random.random() < 0.3}
        self.out += unsigned_varint(len(known) + len(unknown))
        for tag in sorted(known.keys() | unknown.keys()):
            self.out += unsigned_varint(tag)
            if tag in known:
                inner = _Message(self._random, self._words, self._unknown_tags, is_flexible=True)
                inner._field(known[tag])
            content = inner.out if tag in known else unknown[tag]
            self._length(len(content), INTEGERS["int32"], null_is_zero=False)
            self.out += content

    def _field(self, one: SchemaField) -> None:
        if not one.is_array:
            self._one(one)
            return
        count = self._words.count(self._random, is_nullable=one.is_nullable)
        self._length(-1 if count is None else count, INTEGERS["int32"])
        for _ in range(count or 0):
            self._one(one)

    def _one(self, one: SchemaField) -> None:
        random, words = self._random, self._words
        if one.kind == "struct":
            if one.is_nullable and not one.is_array:
                is_null = random.random() < 0.5
                self.out += b"\xff" if is_null else b"\x01"
                if is_null:
                    return
            outside, self._inside = self._inside, one.name
            self.structure(one.fields)
            self._inside = outside
        elif one.kind in INTEGERS:
            form = INTEGERS[one.kind]
            self.out += form.pack(words.integer(random, one.name, 8 * form.size))
        elif one.kind == "float64":
            self.out += struct.pack(">d", words.integer(random, one.name, 32))
        elif one.kind == "bool":
            self.out.append(random.random() < 0.5)
        elif one.kind == "uuid":
            self.out += words.uuid(random).bytes
        elif one.kind == "string":
            self.string(words.text(random, one.name, self._inside, is_nullable=one.is_nullable and not one.is_array))
        else:
            self._sized(words.blob(random, one.name, is_nullable=one.is_nullable), INTEGERS["int32"])

    def _sized(self, raw: bytes | None, form: struct.Struct) -> None:
        self._length(-1 if raw is None else len(raw), form)
        self.out += raw or b""

    def _length(self, length: int, form: struct.Struct, *, null_is_zero: bool = True) -> None:
        raw = unsigned_varint(length + null_is_zero) if self._is_flexible else form.pack(length)
        self.lengths.append(Length(len(self.out), len(raw), self._is_flexible))
        self.out += raw


class RequestFuzzer:
    """Makes frames, one after the other."""

    def __init__(self, random: Random, apis: Mapping[int, VersionRange], words: Words) -> None:
        self._random = random
        self._words = words
        self._some_tags = UnknownTags(random, 0.02)
        self._apis = {ApiKey(key): range(versions.minimum, versions.maximum + 1) for key, versions in apis.items()}
        self._keys = list(self._apis)
        self._last = bytearray(b"\x00")

    def frame(self) -> bytes:
        """Returns a request of some API and version, whole or damaged."""
        key = self._random.choice(self._keys)
        frame, lengths = self.whole(key, self._random.choice(self._apis[key]))
        if self._random.random() < 0.35:
            return bytes(frame)
        damaged = self._damaged(frame, lengths)
        self._last = frame
        return bytes(damaged)

    def whole(
        self, api_key: ApiKey, version: int, unknown_tags: UnknownTags | None = None
    ) -> tuple[bytearray, list[Length]]:
        """Returns an undamaged request, and the places of its lengths."""
        tags = unknown_tags or self._some_tags
        compact, fields = schema(api_key, version, Direction.REQUEST)
        header = _Message(self._random, self._words, tags, is_flexible=False)
        header.out += struct.pack(">hhi", api_key, version, self._random.randrange(1 << 31))
        header.string(self._words.text(self._random, "client_id", "", is_nullable=True))
        if is_flexible(api_key, version):
            end_of_header = _Message(self._random, self._words, tags, is_flexible=True)
            end_of_header.tagged(())
            header.out += end_of_header.out
        message = _Message(self._random, self._words, tags, is_flexible=compact)
        message.structure(fields)
        start = len(header.out)
        lengths = [one._replace(position=one.position + start) for one in message.lengths]
        return header.out + message.out, header.lengths + lengths

    def _damaged(self, frame: bytearray, lengths: Sequence[Length]) -> bytearray:
        kinds = (self._flip, self._cut, self._insert, self._repeat, self._splice, self._header)
        choice = self._random.randrange(len(kinds) + 4)
        if choice >= len(kinds) and lengths:
            one = self._random.choice(lengths)
            return self._overlong(frame, one) if one.is_varint and choice == len(kinds) else self._lie(frame, one)
        return kinds[choice % len(kinds)](bytearray(frame))

    def _flip(self, frame: bytearray) -> bytearray:
        for _ in range(self._random.randint(1, 4)):
            frame[self._random.randrange(len(frame))] ^= 1 << self._random.randrange(8)
        return frame

    def _cut(self, frame: bytearray) -> bytearray:
        del frame[self._random.randrange(len(frame)) :]
        return frame

    def _insert(self, frame: bytearray) -> bytearray:
        at = self._random.randrange(len(frame) + 1)
        frame[at:at] = self._random.randbytes(self._random.randint(1, 12))
        return frame

    def _repeat(self, frame: bytearray) -> bytearray:
        start = self._random.randrange(len(frame))
        piece = frame[start : start + self._random.randint(1, 40)]
        times = self._random.choice((1, 1, 2, 100))
        frame[start:start] = (piece * times)[:MAX_REPEATED]
        return frame

    def _splice(self, frame: bytearray) -> bytearray:
        return frame[: self._random.randrange(len(frame))] + self._last[self._random.randrange(len(self._last)) :]

    def _header(self, frame: bytearray) -> bytearray:
        key, version = self._random.choice(((-1, 0), (0, 99), (18, 77), (999, 0), (3, -1), (18, -1), (32767, 32767)))
        return bytearray(struct.pack(">hh", key, version)) + frame[4:]

    def _lie(self, frame: bytearray, one: Length) -> bytearray:
        """Replaces a length by a false one, which may be off by one."""
        length = self._random.choice(UNTRUE_LENGTHS)
        if one.is_varint:
            lie = unsigned_varint(length & 0xFFFFFFFF)
        else:
            lie = (length & ((1 << 8 * one.size_bytes) - 1)).to_bytes(one.size_bytes, "big")
        frame[one.position : one.position + one.size_bytes] = lie
        return frame

    def _overlong(self, frame: bytearray, one: Length) -> bytearray:
        """Writes the same number with zeros before its end, or without an end."""
        end = one.position + one.size_bytes - 1
        frame[end : end + 1] = bytes((frame[end] | 0x80,)) + b"\x80" * self._random.choice((0, 1, 3, 8, 300)) + b"\x00"
        return frame
