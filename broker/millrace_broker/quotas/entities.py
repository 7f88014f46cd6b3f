"""The entities that have quotas: a user, a client id, both, or an address; each may be the default one.

{"user": "alice", "client-id": "app"}    users/alice/clients/app     as requests name it, and where it is kept
{"user": None}                           users/<default>             None is the default
{"ip": "192.0.2.1"}                      ips/192.0.2.1
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from millrace.errors import InvalidRequestError
from millrace.zk.entity_names import DEFAULT, decode_name, encode_name

USER, CLIENT_ID, ADDRESS = ENTITY_TYPES = ("user", "client-id", "ip")
USERS, CLIENTS, ADDRESSES = "users", "clients", "ips"

Entity = Mapping[str, str | None]


def path_of(entity: Entity) -> str:
    """Returns where the properties of an entity are kept. Raises InvalidRequestError where it can't have any."""
    if not entity:
        raise InvalidRequestError("an entity needs a user, a client id or an address")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise InvalidRequestError(f"entity type {kind!r} is not known; there are {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise InvalidRequestError(f"the name of an entity of type {kind!r} is empty")
    if ADDRESS in entity:
        if len(entity) > 1:
            raise InvalidRequestError(f"entity type {ADDRESS!r} can't be combined with others")
        return f"{ADDRESSES}/{_address(entity[ADDRESS])}"
    below = f"{CLIENTS}/{encode_name(entity[CLIENT_ID])}" if CLIENT_ID in entity else ""
    if USER not in entity:
        return below
    user = f"{USERS}/{encode_name(entity[USER])}"
    return f"{user}/{below}" if below else user


def entity_at(path: str) -> Entity | None:
    """Returns the entity whose properties are kept there; None for a path of another form."""
    match path.split("/"):
        case ["users", user]:
            return {USER: decode_name(user)}
        case ["users", user, "clients", client]:
            return {USER: decode_name(user), CLIENT_ID: decode_name(client)}
        case ["clients", client]:
            return {CLIENT_ID: decode_name(client)}
        case ["ips", address]:
            return {ADDRESS: decode_name(address)}
    return None


def _address(text: str | None) -> str:
    if text is None:
        return DEFAULT
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise InvalidRequestError(f"{text} is not an IP address; names of hosts are not looked up") from None
    return text
