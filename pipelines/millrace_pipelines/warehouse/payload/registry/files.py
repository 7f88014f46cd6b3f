"""A directory as a schema registry, for users who keep their schemas beside their code.

    7.avsc              the schema of id 7, in Avro; 7.proto in Protobuf, 7.json in JSON Schema
    subjects.json       {"subjects": {"flights-value": [7, 9]},
                         "references": {"9": [{"name": "airport.proto", "subject": "airports", "version": 1}]}}

A subject has its versions' ids, oldest first; `references` is needed only where a schema has some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.registry.registry import (
    MAX_SCHEMA_BYTES,
    MAX_VERSIONS,
    Format,
    RegisteredSchema,
    UnknownSchemaError,
    UnresolvedSchema,
    references_in,
    with_references,
)

SUBJECTS_FILE = "subjects.json"
SUFFIXES = {".avsc": Format.AVRO, ".proto": Format.PROTOBUF, ".json": Format.JSON}


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
