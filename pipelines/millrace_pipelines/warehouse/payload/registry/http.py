"""A schema registry over HTTP, with Confluent's REST interface (Confluent, Karapace, Apicurio and others serve it).

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

import os
import ssl
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
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

CONFIG_VARIABLE = "SCHEMA_REGISTRY_CLIENT_CONFIG"
PREFIX = "schema.registry."
TOKEN_TIMEOUT_S = 10.0
MAX_CACHED = 1000
TIMEOUT_S = 10.0
ATTEMPTS = 5
MAX_WAIT_S = 4.0
RETRIED_STATUS = {408, 429, 500, 502, 503, 504}


class _Property(NamedTuple):
    name: str

    @property
    def variable(self) -> str:
        """The variable that may hold it."""
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
    """How a request to a registry is authenticated, and how its TLS is set up."""

    auth: httpx.Auth | None = None
    verify: ssl.SSLContext | bool = True


class BearerAuth(httpx.Auth):
    """A token, with the headers that go beside it."""

    def __init__(self, token: str, headers: Mapping[str, str]) -> None:
        self._headers = {"Authorization": f"Bearer {token}", **headers}

    def auth_flow(self, request: httpx.Request):  # type: ignore[no-untyped-def]  # noqa: ANN201 -- httpx' own type
        """Yields the request with the token."""
        request.headers.update(self._headers)
        yield request


def read_access(environment: Mapping[str, str] = os.environ) -> Access:
    """Returns the access as it is set up now.

    Raises SchemaError where that is contradictory, incomplete, or gets no token.
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
