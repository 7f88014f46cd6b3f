"""What a schema registry answers, be it a server with Confluent's REST interface or a directory.

It is asked two questions: which schema has this id, and which are the versions of a subject. Both raise
UnknownSchemaError where there is none, RegistryError where the registry can't be asked (a later attempt may do), and
SchemaError where what is registered can't be used.

A directory serves users who keep their schemas beside their code:

    7.avsc              the schema of id 7, in Avro; 7.proto in Protobuf, 7.json in JSON Schema
    subjects.json       {"subjects": {"flights-value": [7, 9]},
                         "references": {"9": [{"name": "airport.proto", "subject": "airports", "version": 1}]}}

A subject has its versions' ids, oldest first; `references` is needed only where a schema has some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from millrace_pipelines.warehouse.errors import SchemaError

MAX_REFERENCES = 100
MAX_VERSIONS = 1000
MAX_SCHEMA_BYTES = 4 << 20
SUBJECTS_FILE = "subjects.json"


class Format(StrEnum):
    """What values are made of; `raw` ones are not looked into."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


SUFFIXES = {".avsc": Format.AVRO, ".proto": Format.PROTOBUF, ".json": Format.JSON}


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


class UnresolvedSchema(NamedTuple):
    """A schema as it is registered, its references not followed yet."""

    schema_id: int
    format: Format
    text: str
    references: Sequence[Reference]


FindVersion: TypeAlias = Callable[[str, int], UnresolvedSchema]
"""Looks up one version of a subject."""


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


class FileRegistry:
    """The schemas in a directory; each is read whenever it is asked for."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema of an id."""
        return with_references(self._found(schema_id), self._version)

    def versions(self, subject: str) -> Sequence[RegisteredSchema]:
        """Returns all versions of a subject, oldest first."""
        return [self.schema(schema_id) for schema_id in self._ids(subject)]

    def _version(self, subject: str, version: int) -> UnresolvedSchema:
        ids = self._ids(subject)
        if not 1 <= version <= len(ids):
            raise UnknownSchemaError(f"{self._directory}: subject {subject} has no version {version}")
        return self._found(ids[version - 1])

    def _ids(self, subject: str) -> list[int]:
        ids = self._entry("subjects", subject)
        if ids is None:
            raise UnknownSchemaError(f"{self._directory}: no subject {subject}")
        if not isinstance(ids, list) or len(ids) > MAX_VERSIONS or not all(isinstance(one, int) for one in ids):
            raise SchemaError(f"{self._directory}/{SUBJECTS_FILE}: subject {subject} has no list of ids")
        return ids

    def _found(self, schema_id: int) -> UnresolvedSchema:
        for suffix, kind in SUFFIXES.items():
            path = os.path.join(self._directory, f"{schema_id}{suffix}")
            if os.path.exists(path):
                references = references_in(self._entry("references", str(schema_id)))
                return UnresolvedSchema(schema_id, kind, read_text(path), references)
        raise UnknownSchemaError(f"{self._directory}: no schema {schema_id}")

    def _entry(self, kind: str, name: str) -> object:
        return self._subjects().get(kind, {}).get(name)

    def _subjects(self) -> Mapping[str, Mapping[str, object]]:
        path = os.path.join(self._directory, SUBJECTS_FILE)
        if not os.path.exists(path):
            return {}
        try:
            found = json.loads(read_text(path))
        except ValueError as error:
            raise SchemaError(f"{path}: {error}") from error
        if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
            raise SchemaError(f'{path}: not {{"subjects": {{…}}, "references": {{…}}}}')
        return found


def read_text(path: str) -> str:
    """Returns a file's text; raises SchemaError where it can't be read, or is too large for a schema."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise SchemaError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: {error}") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"{path}: larger than {MAX_SCHEMA_BYTES >> 20} MiB")
    return text
