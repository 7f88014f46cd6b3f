"""What a schema registry answers, be it a server with Confluent's REST interface or a directory.

It is asked two questions: which schema has this id, and which are the versions of a subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from millrace_pipelines.warehouse.errors import SchemaError

MAX_REFERENCES = 100
MAX_VERSIONS = 1000
MAX_SCHEMA_BYTES = 4 << 20


class Format(StrEnum):
    """What values are made of; `raw` ones are not looked into."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Referenced(NamedTuple):
    """A schema that another schema refers to, with the name by which it does so."""

    name: str
    text: str


class Reference(NamedTuple):
    """Where a referenced schema is: its name in the text that refers to it, its subject and version."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry, with all schemas that it needs, each after those that it needs itself."""

    schema_id: int
    format: Format
    text: str
    references: tuple[Referenced, ...] = ()


class UnknownSchemaError(SchemaError):
    """The registry has no such schema or subject."""


class SchemaRegistry(Protocol):
    """Where schemas are looked up.

    Raises:
        UnknownSchemaError: There is no such schema or subject.
        RegistryError: The registry can't be asked; a later attempt may do.
        SchemaError: What is registered can't be used.
    """

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema of an id."""
        ...

    def versions(self, subject: str) -> Sequence[RegisteredSchema]:
        """Returns all versions of a subject, oldest first."""
        ...


class UnresolvedSchema(NamedTuple):
    """A schema as it is registered, its references not followed yet."""

    schema_id: int
    format: Format
    text: str
    references: Sequence[Reference]


class FindVersion(Protocol):
    """Looks up one version of a subject."""

    def __call__(self, subject: str, version: int) -> UnresolvedSchema:
        """Returns the schema of that version."""
        ...


def with_references(found: UnresolvedSchema, find: FindVersion) -> RegisteredSchema:
    """Returns the schema with all that it refers to.

    Raises SchemaError where these are too many, or one refers to itself.
    """
    gathered: dict[str, Referenced] = {}
    _gather(found, find, gathered, ())
    return RegisteredSchema(found.schema_id, found.format, found.text, tuple(gathered.values()))


def _gather(
    found: UnresolvedSchema, find: FindVersion, gathered: dict[str, Referenced], within: tuple[str, ...]
) -> None:
    for reference in found.references:
        if reference.name in within or len(within) > MAX_REFERENCES or len(gathered) >= MAX_REFERENCES:
            raise SchemaError(f"schema {found.schema_id}: more than {MAX_REFERENCES} references, or one to itself")
        if reference.name not in gathered:
            inner = find(reference.subject, reference.version)
            _gather(inner, find, gathered, (*within, reference.name))
            gathered[reference.name] = Referenced(reference.name, inner.text)


def format_named(name: object) -> Format:
    """Returns the format under the registry's name for it: AVRO, PROTOBUF, JSON; none means AVRO."""
    try:
        return Format(str(name or "AVRO").lower())
    except ValueError:
        raise SchemaError(f"schemas of type {name} are not served") from None


def references_in(declared: object) -> list[Reference]:
    """Returns the references of an answer, or of a directory's list.

    Raises SchemaError where it is no list of references.
    """
    if not declared:
        return []
    if not isinstance(declared, list):
        raise SchemaError(f"not a list of references: {declared!r}")
    try:
        return [_reference(entry) for entry in declared]
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"not a list of references: {declared!r}") from error


def _reference(entry: Mapping[str, object]) -> Reference:
    return Reference(str(entry["name"]), str(entry["subject"]), int(str(entry["version"])))
