"""Kafka's messages by its own definitions (millrace_support.kafka_definitions): a codec that our broker does not share.

    messages = Messages([find_kafka("4.1"), find_kafka("3.9")])
    frame = messages.encode_request("Metadata", 9, 1, {"topics": [{"name": "t"}]})
    correlation_id, answer = messages.decode_response("Metadata", 9, frame)

Names are those of the definitions with a small first letter. A field that a version doesn't have is left out when
encoding and decoding. A field that is not given takes the definition's default, and one that no version has is an
error. If several jars define a version, the first jar counts: newer definitions have dropped the oldest versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from millrace.errors import MalformedRequestError, SetupError
from millrace_benchmarks.kafka_broker import Kafka
from millrace_support.kafka_definitions import NUMBERS, Definition, Field, Versions, read_definitions

API_VERSIONS = 18
UNKNOWN_TAG, UNKNOWN_CONTENT = 10_000, b"of a later version"
Fields = Mapping[str, Any]


class Messages:
    """The definitions of several versions of Apache Kafka; the first version that defines a message counts."""

    def __init__(self, kafkas: Iterable[Kafka]) -> None:
        self._definitions: dict[str, list[Definition]] = {}
        for kafka in kafkas:
            for definition in read_definitions(kafka):
                self._definitions.setdefault(definition.name, []).append(definition)

    def api_key(self, api: str) -> int:
        """Returns the number of an API like "Fetch"."""
        return self._definitions[f"{api}Request"][0].api_key

    def api_names(self) -> dict[int, str]:
        """Returns the newest name of every API by its number."""
        return {
            one.api_key: name.removesuffix("Request")
            for name, (one, *_) in reversed(self._definitions.items())
            if name.endswith("Request")
        }

    def definition(self, name: str, version: int) -> Definition:
        """Returns the definition that has the version; raises SetupError if there is none."""
        for definition in self._definitions.get(name, ()):
            if version in definition.valid:
                return definition
        raise SetupError(f"no definition of {name} v{version}")

    def encode(self, name: str, version: int, fields: Fields, *, unknown_tags: bool = False) -> bytes:
        """Encodes a message by its full name, like `ConsumerProtocolSubscription`.

        With `unknown_tags` each structure of a flexible version has a tagged field that no definition knows.
        """
        definition = self.definition(name, version)
        writer = Writer(version, definition.flexible, unknown_tags=unknown_tags)
        writer.struct(definition.fields, fields)
        return bytes(writer.out)

    def decode(self, name: str, version: int, body: bytes) -> dict[str, Any]:
        """Decodes the message that fills `body`; raises MalformedRequestError if bytes are missing or left over."""
        reader = Reader(version, self.definition(name, version).flexible, body)
        message = reader.struct(self.definition(name, version).fields)
        reader.expect_end(f"{name} v{version}")
        return message

    def encode_request(
        self,
        api: str,
        version: int,
        correlation_id: int,
        fields: Fields,
        *,
        unknown_tags: bool = False,
        client_id: str = "judge",
    ) -> bytes:
        """Encodes a request with its header, without the frame's length."""
        definition = self.definition(f"{api}Request", version)
        header = {
            "requestApiKey": definition.api_key,
            "requestApiVersion": version,
            "correlationId": correlation_id,
            "clientId": client_id,
        }
        is_oldest = api == "ControlledShutdown" and version == 0  # the only request without a client id
        header_version = 0 if is_oldest else 2 if version in definition.flexible else 1
        parts = (("RequestHeader", header_version, header), (definition.name, version, fields))
        return b"".join(self.encode(*part, unknown_tags=unknown_tags) for part in parts)

    def decode_response(self, api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
        """Decodes a whole frame to (correlation id, message)."""
        definition = self.definition(f"{api}Response", version)
        flexible_header = version in definition.flexible and definition.api_key != API_VERSIONS
        correlation_id = int.from_bytes(frame[:4], "big")
        if flexible_header and frame[4:5] != b"\x00":
            raise MalformedRequestError(f"{api} v{version}: the answer's header has tagged fields or lacks their count")
        return correlation_id, self.decode(definition.name, version, frame[5 if flexible_header else 4 :])


class Writer:
    """Writes one message of one version."""

    def __init__(self, version: int, flexible: Versions, *, unknown_tags: bool = False) -> None:
        self.out = bytearray()
        self._version = version
        self._flexible = version in flexible
        self._unknown_tags = unknown_tags

    def struct(self, fields: tuple[Field, ...], values: Fields) -> None:
        """Writes a struct's fields, then those tagged fields that differ from their default."""
        unknown = set(values) - {one.name for one in fields}
        if unknown:
            raise SetupError(f"no field {', '.join(sorted(unknown))} beside {', '.join(one.name for one in fields)}")
        present = [one for one in fields if self._version in one.versions]
        given = {one.name: values.get(one.name, one.default_value(self._version)) for one in present}
        for one in present:
            if self._version not in one.tagged:
                self._value(one, given[one.name])
        if self._flexible:
            tagged = [one for one in present if self._version in one.tagged and one.name in values]
            self._tagged(sorted(tagged, key=lambda one: one.tag), given)

    def _tagged(self, fields: list[Field], given: Fields) -> None:
        self.varint(len(fields) + self._unknown_tags)
        for one in fields:
            inner = Writer(self._version, Versions(self._version, self._version), unknown_tags=self._unknown_tags)
            inner._value(one, given[one.name])
            self._tag(one.tag, inner.out)
        if self._unknown_tags:
            self._tag(UNKNOWN_TAG, UNKNOWN_CONTENT)

    def _tag(self, tag: int, content: bytes | bytearray) -> None:
        self.varint(tag)
        self.varint(len(content))
        self.out += content

    def varint(self, value: int) -> None:
        """Writes an unsigned varint."""
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def _length(self, length: int, format_: str, *, compact: bool) -> None:
        self.varint(length + 1) if compact else self.out.extend(struct.pack(format_, length))

    def _value(self, one: Field, value: Any) -> None:
        compact = self._flexible and (one.flexible is None or self._version in one.flexible)
        if one.type in NUMBERS:
            self.out += struct.pack(NUMBERS[one.type], value)
        elif one.type == "uuid":
            self.out += value.bytes
        elif one.type in ("string", "bytes", "records"):
            raw = value.encode() if isinstance(value, str) else value
            self._length(-1 if raw is None else len(raw), ">h" if one.type == "string" else ">i", compact=compact)
            self.out += raw or b""
        elif one.type.startswith("[]"):
            self._length(-1 if value is None else len(value), ">i", compact=compact)
            for element in value or ():
                self._value(one.element, element)
        else:
            if self._version in one.nullable and self._version not in one.tagged:
                self.out += struct.pack(">b", -1 if value is None else 1)
            if value is not None:
                self.struct(one.fields, value)


class Reader:
    """Reads one message of one version."""

    def __init__(self, version: int, flexible: Versions, body: bytes) -> None:
        self._version = version
        self._flexible = version in flexible
        self._body = body
        self._position = 0

    def expect_end(self, what: str) -> None:
        """Raises MalformedRequestError if bytes are left over."""
        left = len(self._body) - self._position
        if left:
            raise MalformedRequestError(f"{what}: {left} bytes are left over")

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        """Reads a struct; absent tagged fields have their defaults, and unknown ones are kept by number."""
        present = [one for one in fields if self._version in one.versions]
        values = {
            one.name: one.default_value(self._version) if self._version in one.tagged else self._value(one)
            for one in present
        }
        if self._flexible:
            tags = {one.tag: one for one in present if self._version in one.tagged}
            for _ in range(self._varint()):
                tag, content = self._varint(), self._take(self._varint())
                inner = Reader(self._version, Versions(self._version, self._version), content)
                values[tags[tag].name if tag in tags else f"tag {tag}"] = (
                    inner._value(tags[tag]) if tag in tags else content
                )
        return values

    def _take(self, count: int) -> bytes:
        taken = self._body[self._position : self._position + count]
        if len(taken) != count:
            raise MalformedRequestError(f"{count} bytes asked for at {self._position} of {len(self._body)}")
        self._position += count
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _number(self, format_: str) -> Any:
        return struct.unpack(format_, self._take(struct.calcsize(format_)))[0]

    def _length(self, format_: str, *, compact: bool) -> int:
        return self._varint() - 1 if compact else int(self._number(format_))

    def _value(self, one: Field) -> Any:
        compact = self._flexible and (one.flexible is None or self._version in one.flexible)
        if one.type in NUMBERS:
            return self._number(NUMBERS[one.type])
        if one.type == "uuid":
            return UUID(bytes=self._take(16))
        if one.type in ("string", "bytes", "records"):
            length = self._length(">h" if one.type == "string" else ">i", compact=compact)
            raw = None if length < 0 else self._take(length)
            return raw.decode() if raw is not None and one.type == "string" else raw
        if one.type.startswith("[]"):
            length = self._length(">i", compact=compact)
            return None if length < 0 else [self._value(one.element) for _ in range(length)]
        if self._version in one.nullable and self._version not in one.tagged and self._number(">b") < 0:
            return None
        return self.struct(one.fields)
