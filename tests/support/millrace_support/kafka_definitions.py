"""The definitions of Kafka's messages as they lie in the jar of its clients, read at run time.

definition   common/message/NAME.json: apiKey, validVersions "a-b", flexibleVersions "c+", fields, commonStructs
field        name, type (bool, [u]intN, float64, uuid, string, bytes, records, a struct, []TYPE), versions,
nullableVersions, taggedVersions with tag, default
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self
from uuid import UUID

from millrace_benchmarks.kafka_broker import Kafka

FOLDER = "common/message/"
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
NUMBERS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, written `none`, `3`, `3-5` or `3+`."""

    first: int = 0
    last: int = -1

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Parses the text of a definition; an absent text means none."""
        if text is None or text == "none":
            return cls()
        first, dash, last = text.rstrip("+").partition("-")
        return cls(int(first), 1 << 15 if text.endswith("+") else int(last) if dash else int(first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True)
class Field:
    """One field of a definition."""

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    default: Any
    fields: tuple[Field, ...] = field(repr=False)

    @cached_property
    def element(self) -> Field:
        """The field of an array's element."""
        return Field(
            self.name, self.type[2:], self.versions, Versions(), Versions(), -1, self.flexible, None, self.fields
        )

    def default_value(self, version: int) -> Any:
        """Returns the value of a field that is not given."""
        if self.default == "null" or (self.default is None and self.fields and version in self.nullable):
            return None
        if self.type.startswith("[]"):
            return ()
        if self.type in NUMBERS:
            return _number(self.default or "0")
        return {"string": self.default or "", "uuid": UUID(int=0), "bytes": b"", "records": None}.get(self.type, {})


def _number(text: Any) -> int | float | bool:
    if isinstance(text, str) and text in ("true", "false"):
        return text == "true"
    return float(text) if "." in str(text) else int(str(text), 0)


@dataclass(frozen=True, slots=True)
class Definition:
    """One message."""

    name: str
    api_key: int
    valid: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """Parses a definition's JSON."""
        structs = {one["name"]: one["fields"] for one in content.get("commonStructs", ())}
        return cls(
            content["name"],
            content.get("apiKey", -1),
            Versions.parse(content["validVersions"]),
            Versions.parse(content.get("flexibleVersions")),
            tuple(_field(one, structs) for one in content["fields"]),
        )


def _field(one: Mapping[str, Any], structs: Mapping[str, Any]) -> Field:
    inner = one.get("fields") or structs.get(one["type"].removeprefix("[]"), ())
    return Field(
        one["name"][0].lower() + one["name"][1:],
        one["type"],
        Versions.parse(one.get("versions")),
        Versions.parse(one.get("nullableVersions")),
        Versions.parse(one.get("taggedVersions")),
        int(one.get("tag", -1)),
        Versions.parse(one["flexibleVersions"]) if "flexibleVersions" in one else None,
        one.get("default"),
        tuple(_field(nested, structs) for nested in inner),
    )


def read_definitions(kafka: Kafka) -> Iterable[Definition]:
    """Returns every message that the version's jar defines and still has."""
    (jar,) = kafka.libs.glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(FOLDER) and name.endswith(".json"):
                content = json.loads(COMMENT.sub("", archive.read(name).decode()))
                if content["validVersions"] != "none":
                    yield Definition.parse(content)
