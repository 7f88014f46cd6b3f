"""A schema registry over HTTP, with Confluent's REST interface (Confluent, Karapace, Apicurio and others serve it).

    GET /schemas/ids/{id}                       {"schema": text, "schemaType": "AVRO", "references": […]}
    GET /subjects/{subject}/versions            [1, 2, 3]
    GET /subjects/{subject}/versions/{version}  {"id": 7, "schema": …, "schemaType": …, "references": […]}

What is registered never changes, so schemas are kept, the latest MAX_CACHED of them. A server that can't be reached, or
answers 429 or 5xx, is asked again for some seconds. Credentials never come from the address, which the table keeps, but
from the environment (`access`).
Source: Confluent, "Schema Registry API Reference".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.json_values import Json
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError
from millrace_pipelines.warehouse.payload.registry.access import USER_INFO, read_access
from millrace_pipelines.warehouse.payload.registry.registry import (
    MAX_SCHEMA_BYTES,
    MAX_VERSIONS,
    RegisteredSchema,
    UnknownSchemaError,
    UnresolvedSchema,
    format_named,
    references_in,
    with_references,
)

MAX_CACHED = 1000
TIMEOUT_S = 10.0
ATTEMPTS = 5
MAX_WAIT_S = 4.0
RETRIED_STATUS = {408, 429, 500, 502, 503, 504}


class HttpRegistry:
    """The registry at an address; raises SchemaError where that can't be the address of one."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SchemaError(f"{url}: not the address of a schema registry")
        if parts.username is not None or parts.password is not None:
            raise SchemaError(f"{parts.hostname}: a registry's user and password belong into {USER_INFO.variable}")
        self._url = url.rstrip("/")
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema of an id."""
        if schema_id in self._schemas:
            self._schemas.move_to_end(schema_id)
            return self._schemas[schema_id]
        return self._keep(_found(self._get(f"/schemas/ids/{schema_id}"), schema_id))

    def versions(self, subject: str) -> Sequence[RegisteredSchema]:
        """Returns all versions of a subject, oldest first."""
        numbers = self._get(f"/subjects/{quote(subject, safe='')}/versions")
        listed = numbers if isinstance(numbers, list) else [None]
        versions = sorted(number for number in listed if isinstance(number, int))
        if len(versions) < len(listed) or len(versions) > MAX_VERSIONS:
            raise SchemaError(f"{self._url}: not a list of versions of subject {subject}: {str(numbers)[:200]}")
        return [self._keep(self._version(subject, version)) for version in versions]

    def _version(self, subject: str, version: int) -> UnresolvedSchema:
        return _found(self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}"), None)

    def _keep(self, found: UnresolvedSchema) -> RegisteredSchema:
        schema = with_references(found, self._version)
        self._schemas[schema.schema_id] = schema
        while len(self._schemas) > MAX_CACHED:
            self._schemas.popitem(last=False)
        return schema

    def _get(self, path: str) -> Json:
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=MAX_WAIT_S),
            retry=retry_if_exception_type(RegistryError),
            reraise=True,
        )
        return retrying(self._get_once, path)

    def _get_once(self, path: str) -> Json:
        access = read_access()
        try:
            with (
                httpx.Client(
                    auth=access.auth, verify=access.verify, timeout=TIMEOUT_S, follow_redirects=True
                ) as client,
                client.stream("GET", self._url + path) as response,
            ):
                body = _read(response)
        except httpx.HTTPError as error:
            raise RegistryError(f"{self._url}: {type(error).__name__}: {error}") from error
        if response.status_code in RETRIED_STATUS:
            raise RegistryError(f"{self._url}{path}: status {response.status_code}")
        if response.status_code == httpx.codes.NOT_FOUND:
            raise UnknownSchemaError(f"{self._url}{path}: not registered")
        if not response.is_success:
            raise SchemaError(f"{self._url}{path}: status {response.status_code}: {body[:200]!r}")
        try:
            answer: Json = httpx.Response(200, content=body).json()
        except ValueError as error:
            raise SchemaError(f"{self._url}{path}: the answer is no JSON: {body[:200]!r}") from error
        return answer


def _read(response: httpx.Response) -> bytes:
    body = b""
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_SCHEMA_BYTES:
            raise SchemaError(f"{response.url}: an answer larger than {MAX_SCHEMA_BYTES >> 20} MiB")
    return body


def _found(answer: Json, schema_id: int | None) -> UnresolvedSchema:
    """Returns the schema in an answer, which names its id unless it was asked for by it."""
    text = answer.get("schema") if isinstance(answer, dict) else None
    found_id = answer.get("id") if isinstance(answer, dict) and schema_id is None else schema_id
    if not isinstance(answer, dict) or not isinstance(text, str) or not isinstance(found_id, int):
        raise SchemaError(f"not a registered schema: {str(answer)[:200]}")
    return UnresolvedSchema(
        found_id, format_named(answer.get("schemaType")), text, references_in(answer.get("references"))
    )
