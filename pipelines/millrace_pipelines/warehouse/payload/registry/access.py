"""How readers authenticate to a schema registry: by Confluent's client properties, from a file and the environment.

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
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx

from millrace.config import read_properties
from millrace.errors import InvalidConfigError, SaslAuthenticationError
from millrace.security.client_security import ClientSecurity
from millrace.security.protocols import IDENTIFICATION
from millrace.security.sasl.oauth_login import TokenEndpoint, token_source
from millrace_pipelines.warehouse.errors import SchemaError

CONFIG_VARIABLE = "SCHEMA_REGISTRY_CLIENT_CONFIG"
PREFIX = "schema.registry."
TOKEN_TIMEOUT_S = 10.0


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
