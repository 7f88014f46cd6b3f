"""What a schema registry answers, be it a server with Confluent's REST interface or a directory.

It is asked two questions: which schema has this id, and which are the versions of a subject. Both raise
UnknownSchemaError where there is none, RegistryError where the registry can't be asked (a later attempt may do), and
SchemaError where what is registered can't be used.

A directory serves users who keep their schemas beside their code:

    7.avsc              the schema of id 7, in Avro; 7.proto in Protobuf, 7.json in JSON Schema
    subjects.json       {"subjects": {"flights-value": [7, 9]},
                         "references": {"9": [{"name": "airport.proto", "subject": "airports", "version": 1}]}}

A subject has its versions' ids, oldest first; `references` is needed only where a schema has some.

A server has Confluent's REST interface (Confluent, Karapace, Apicurio and others serve it):

    GET /schemas/ids/{id}                       {"schema": text, "schemaType": "AVRO", "references": […]}
    GET /subjects/{subject}/versions            [1, 2, 3]
    GET /subjects/{subject}/versions/{version}  {"id": 7, "schema": …, "schemaType": …, "references": […]}

What is registered never changes, so schemas are kept, the latest MAX_CACHED of them. A server that can't be reached, or
answers 429 or 5xx, is asked again for some seconds. Credentials never come from the address, which the table keeps, but
from Confluent's client properties, in a file and the environment:

    property                         what it is for
    basic.auth.user.info             USER:PASSWORD
    bearer.auth.token                a token that does not change
    bearer.auth.issuer.endpoint.url  where tokens are requested by OAuth's client credentials, with the properties
    bearer.auth.client.id, .client.secret, .scope
    bearer.auth.logical.cluster      sent to the registry beside a token, as Confluent Cloud requires; so is
    bearer.auth.identity.pool.id
    ssl.…                            whom to trust, and the reader's own certificate, as for brokers

The file is the one that SCHEMA_REGISTRY_CLIENT_CONFIG names; its names may begin with `schema.registry.`, as in Kafka's
own files. A variable wins over it: SCHEMA_REGISTRY_ and the property in capitals, `_` for `.`. Each process that asks a
registry reads them itself; they are neither kept nor passed on.

Source: Confluent, "Schema Registry API Reference".
"""

from __future__ import annotations

import json
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from millrace.config import read_properties
from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.json_values import Json
from millrace.security.client_security import ClientSecurity
from millrace.security.protocols import IDENTIFICATION
from millrace.security.sasl.oauth_login import TokenEndpoint, token_source
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError

MAX_REFERENCES = 100
MAX_VERSIONS = 1000
MAX_SCHEMA_BYTES = 4 << 20
SUBJECTS_FILE = "subjects.json"
CONFIG_VARIABLE = "SCHEMA_REGISTRY_CLIENT_CONFIG"
PREFIX = "schema.registry."
TOKEN_TIMEOUT_S = 10.0
MAX_CACHED = 1000
TIMEOUT_S = 10.0
ATTEMPTS = 5
MAX_WAIT_S = 4.0
RETRIED_STATUS = {408, 429, 500, 502, 503, 504}


class Format(StrEnum):
    """The formats of values; `raw` values are not decoded."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


SUFFIXES = {".avsc": Format.AVRO, ".proto": Format.PROTOBUF, ".json": Format.JSON}


class Referenced(NamedTuple):
    """The text of a schema that another schema refers to, and the name by which it does so."""

    name: str
    text: str


class Reference(NamedTuple):
    """A reference to another schema: the name in the referring text, and the subject and version of the other."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry, with the schemas that it refers to, each after those that it refers to itself."""

    schema_id: int
    format: Format
    text: str
    references: tuple[Referenced, ...] = ()


class UnknownSchemaError(SchemaError):
    """The registry has no schema of an id, or no subject of a name, that was asked for."""


class UnresolvedSchema(NamedTuple):
    """A schema as it is registered, with references that are not followed yet."""

    schema_id: int
    format: Format
    text: str
    references: Sequence[Reference]


FindVersion: TypeAlias = Callable[[str, int], UnresolvedSchema]
"""Looks up one version of a subject."""


def with_references(found: UnresolvedSchema, find: FindVersion) -> RegisteredSchema:
    """Returns a schema with all schemas that it refers to, which `find` reads.

    Raises SchemaError where there are too many of them, or one refers to itself.
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
    """Returns the format by the registry's name for it: AVRO, PROTOBUF or JSON; no name means AVRO."""
    try:
        return Format(str(name or "AVRO").lower())
    except ValueError:
        raise SchemaError(f"schemas of type {name} are not served") from None


def references_in(declared: object) -> list[Reference]:
    """Returns the references in a registry's response, or in a list of a schema directory.

    Raises SchemaError where `declared` is no list of references.
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
    """A registry whose schemas are files in a directory; each is read whenever it is asked for."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with an id."""
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


class _Property(NamedTuple):
    name: str

    @property
    def variable(self) -> str:
        """Returns the environment variable that may hold the setting."""
        return (PREFIX + self.name).upper().replace(".", "_")


USER_INFO = _Property("basic.auth.user.info")
TOKEN = _Property("bearer.auth.token")
TOKEN_URL = _Property("bearer.auth.issuer.endpoint.url")
CLIENT_ID, CLIENT_SECRET = _Property("bearer.auth.client.id"), _Property("bearer.auth.client.secret")
SCOPE = _Property("bearer.auth.scope")
LOGICAL_CLUSTER, IDENTITY_POOL = _Property("bearer.auth.logical.cluster"), _Property("bearer.auth.identity.pool.id")
HEADERS = {LOGICAL_CLUSTER: "target-sr-cluster", IDENTITY_POOL: "Confluent-Identity-Pool-Id"}
SSL = tuple(
    map(
        _Property,
        (
            *(
                "ssl.truststore.location",
                "ssl.truststore.type",
                "ssl.truststore.password",
                "ssl.truststore.certificates",
            ),
            *("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password"),
            *("ssl.keystore.certificate.chain", "ssl.keystore.key", IDENTIFICATION),
            *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
        ),
    )
)
KNOWN = (USER_INFO, TOKEN, TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE, LOGICAL_CLUSTER, IDENTITY_POOL, *SSL)


@dataclass(frozen=True, slots=True)
class Access:
    """The authentication and TLS settings of requests to a registry."""

    auth: httpx.Auth | None = None
    verify: ssl.SSLContext | bool = True


class BearerAuth(httpx.Auth):
    """Authentication by a bearer token, with further headers."""

    def __init__(self, token: str, headers: Mapping[str, str]) -> None:
        self._headers = {"Authorization": f"Bearer {token}", **headers}

    def auth_flow(self, request: httpx.Request):  # type: ignore[no-untyped-def]  # noqa: ANN201 -- httpx' own type
        """Yields the request with the token in its headers, as httpx asks."""
        request.headers.update(self._headers)
        yield request


def read_access(environment: Mapping[str, str] = os.environ) -> Access:
    """Returns the authentication and TLS settings from environment variables.

    Raises SchemaError where these are contradictory or incomplete, or where no token can be got.
    """
    try:
        given = _given(environment)
        return Access(_auth(given), _verify(given))
    except (InvalidConfigError, SaslAuthenticationError) as error:
        raise SchemaError(f"the schema registry can't be asked: {error}") from error


def _given(environment: Mapping[str, str]) -> dict[_Property, str]:
    path = environment.get(CONFIG_VARIABLE)
    written = read_properties(Path(path)) if path else {}
    of_file = {name.removeprefix(PREFIX): line.value for name, line in written.items()}
    found = {one: environment.get(one.variable) or of_file.get(one.name, "") for one in KNOWN}
    return {one: value for one, value in found.items() if value}


def _auth(given: Mapping[_Property, str]) -> httpx.Auth | None:
    ways = [one for one in (USER_INFO, TOKEN, TOKEN_URL) if one in given]
    if len(ways) > 1:
        raise InvalidConfigError(f"{ways[0].name} and {ways[1].name} are given; one of them is to go")
    if not ways:
        return None
    if ways == [USER_INFO]:
        user, _, password = given[USER_INFO].partition(":")
        return httpx.BasicAuth(user, password)
    token = given[TOKEN] if TOKEN in given else _fetched(given)
    return BearerAuth(token, {header: given[one] for one, header in HEADERS.items() if one in given})


def _fetched(given: Mapping[_Property, str]) -> str:
    for needed in (CLIENT_ID, CLIENT_SECRET):
        if needed not in given:
            raise InvalidConfigError(f"{TOKEN_URL.name} needs {needed.name}")
    endpoint = TokenEndpoint(
        url=given[TOKEN_URL],
        client_id=given[CLIENT_ID],
        client_secret=given[CLIENT_SECRET],
        scope=given.get(SCOPE, ""),
        timeout_s=TOKEN_TIMEOUT_S,
        is_urlencoded=False,
    )
    return token_source(endpoint).token()


def _verify(given: Mapping[_Property, str]) -> ssl.SSLContext | bool:
    properties = {one.name: given[one] for one in SSL if one in given}
    if not properties:
        return True
    return ClientSecurity.from_properties({"security.protocol": "SSL", **properties}).context or True


class HttpRegistry:
    """The schema registry at a URL; raises SchemaError where the URL can't be that of a registry."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SchemaError(f"{url}: not the address of a schema registry")
        if parts.username is not None or parts.password is not None:
            raise SchemaError(f"{parts.hostname}: a registry's user and password belong into {USER_INFO.variable}")
        self._url = url.rstrip("/")
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with an id."""
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
    """Returns the schema in a registry's response, which has to name its id unless `schema_id` is given."""
    text = answer.get("schema") if isinstance(answer, dict) else None
    found_id = answer.get("id") if isinstance(answer, dict) and schema_id is None else schema_id
    if not isinstance(answer, dict) or not isinstance(text, str) or not isinstance(found_id, int):
        raise SchemaError(f"not a registered schema: {str(answer)[:200]}")
    return UnresolvedSchema(
        found_id, format_named(answer.get("schemaType")), text, references_in(answer.get("references"))
    )
