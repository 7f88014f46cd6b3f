"""The properties that are quotas, as Apache Kafka's QuotaConfigs has them, and which of a client's eight levels counts.

    producer_byte_rate          long      bytes per second that are produced
    consumer_byte_rate          long      bytes per second that are fetched
    request_percentage          double    time of the event loop; 100 is all of it
    controller_mutation_rate    double    partitions per second that are created and deleted
    connection_creation_rate    int       connections per second from one address

    users/U/clients/C                   the client of the user                   is measured by itself
    users/U/clients/<default>           any client of the user                   each client by itself
    users/U                             the user                                 all clients of the user together
    users/<default>/clients/C           the client of any user                   of each user by itself
    users/<default>/clients/<default>   any client of any user                   each client of each user by itself
    users/<default>                     any user                                 all clients of each user together
    clients/C                           the client, whoever its user is          all users of the client together
    clients/<default>                   any client                               all users of each client together

The first level that has the property counts. A client that gives no client id is found at the levels of users alone.
Names in these paths are encoded (`millrace.zk.paths`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from millrace.config import MAX_INT, MAX_LONG
from millrace.zk.paths import DEFAULT, encode_name

logger = logging.getLogger(__name__)

MAX_CACHED = 10_000
ADDRESSES = "ips/"

Configs = Mapping[str, Mapping[str, str]]


class QuotaKind(Enum):
    """What a quota limits, such as bytes produced per second; the value is the name of its property."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


class QuotaType(NamedTuple):
    """The type of a quota's value; `maximum` is that of whole numbers, None for a type with fractions."""

    name: str
    maximum: int | None = None


CONNECTION_CREATION_RATE = "connection_creation_rate"
DOUBLE = QuotaType("DOUBLE")
LONG = QuotaType("LONG", MAX_LONG)
INT = QuotaType("INT", MAX_INT)

CLIENT_QUOTAS = {
    QuotaKind.PRODUCE.value: LONG,
    QuotaKind.FETCH.value: LONG,
    QuotaKind.REQUEST.value: DOUBLE,
    QuotaKind.CONTROLLER_MUTATION.value: DOUBLE,
}
ADDRESS_QUOTAS = {CONNECTION_CREATION_RATE: INT}


def parse_quota(text: str) -> float | None:
    """Returns the number in a stored quota; None for a text that is no number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value >= 0 else None


class Client(NamedTuple):
    """A user and a client id whose use is measured together; "" where all clients, or all users, share a quota."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """A quota that holds for a client: whose use is measured for it, and what is allowed per second."""

    measured: Client
    per_second: float


def levels(client: Client) -> Iterator[tuple[str, Client]]:
    """Yields where a client's quota may be set, most specific first: the path, and whose use is measured then."""
    user, client_id = encode_name(client.user), encode_name(client.client_id)
    all_clients, all_users = Client(client.user, ""), Client("", client.client_id)
    if client.client_id:
        yield f"users/{user}/clients/{client_id}", client
        yield f"users/{user}/clients/{DEFAULT}", client
    yield f"users/{user}", all_clients
    if client.client_id:
        yield f"users/{DEFAULT}/clients/{client_id}", client
        yield f"users/{DEFAULT}/clients/{DEFAULT}", client
    yield f"users/{DEFAULT}", all_clients
    if client.client_id:
        yield f"clients/{client_id}", all_users
        yield f"clients/{DEFAULT}", all_users


class QuotaLimits:
    """The quotas that the properties of users, clients and addresses set; found ones are cached."""

    def __init__(self, configs: Configs) -> None:
        self._of_kind = {kind: _values(configs, kind.value) for kind in QuotaKind}
        self._of_address = _values(configs, CONNECTION_CREATION_RATE)
        self._found: dict[tuple[QuotaKind, Client], Limit | None] = {}

    @property
    def has_client_quotas(self) -> bool:
        """Returns whether any user or client has a quota."""
        return any(self._of_kind.values())

    def find(self, kind: QuotaKind, client: Client) -> Limit | None:
        """Returns the most specific quota of a kind for a client; None where there is none."""
        key = kind, client
        try:
            return self._found[key]
        except KeyError:
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            found = self._found[key] = self._search(kind, client)
            return found

    def connection_rate(self, address: str) -> float | None:
        """Returns how many connections per second may come from an address; None where that is not limited."""
        own = self._of_address.get(ADDRESSES + address)
        return self._of_address.get(ADDRESSES + DEFAULT) if own is None else own

    def _search(self, kind: QuotaKind, client: Client) -> Limit | None:
        values = self._of_kind[kind]
        if not values:
            return None
        return next((Limit(measured, values[path]) for path, measured in levels(client) if path in values), None)


def _values(configs: Configs, name: str) -> dict[str, float]:
    """Returns a property's numbers by path, like `users/alice`; any other value is logged and left out."""
    values = {}
    for path, config in configs.items():
        text = config.get(name)
        if text is None:
            continue
        value = parse_quota(text)
        if value is None:
            logger.warning("%s=%s of %s is no number of 0 or more, and is ignored", name, text, path)
        else:
            values[path] = value
    return values
