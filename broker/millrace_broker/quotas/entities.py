"""The entities that have quotas, which of them a request asks for, and what an alteration makes of them (KIP-546).

An entity is a user, a client id, both, or an address; each may be the default one.

    {"user": "alice", "client-id": "app"}    users/alice/clients/app     as requests name it, and where it is kept
    {"user": None}                           users/<default>             None is the default
    {"ip": "192.0.2.1"}                      ips/192.0.2.1

A filter has one component for each type of entity.

    exact       the entity has this name        default    it is the default one
    any         it has a name of this type      strict     it has no types besides those of the filter

So the filter `user: any` finds users, and their clients too unless it is strict; the empty filter finds everything, or
nothing where it is strict. Addresses are found by themselves.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import InvalidRequestError, UnsupportedVersionError
from millrace.turns import each
from millrace.zk.paths import DEFAULT, decode_name, encode_name
from millrace_broker.quotas.limits import ADDRESS_QUOTAS, CLIENT_QUOTAS, Configs, QuotaType, parse_quota

USER, CLIENT_ID, ADDRESS = ENTITY_TYPES = ("user", "client-id", "ip")
USERS, CLIENTS, ADDRESSES = "users", "clients", "ips"

Entity = Mapping[str, str | None]
EXACT, DEFAULT_ONE, ANY = range(3)
EPSILON = 1e-6
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7  # numbers that Java writes without an exponent


def path_of(entity: Entity) -> str:
    """Returns the path of an entity's properties, like `users/alice`. Raises InvalidRequestError for a bad entity."""
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
    """Returns the entity whose properties have this path, like `users/alice`; None for any other path."""
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


class Component(NamedTuple):
    """A filter for the names of one entity type: one name (`match`), the default's, or any, as `match_type` says."""

    entity_type: str
    match_type: int
    match: str | None


class EntityQuotas(NamedTuple):
    """An entity (a user, a client id, both, or an address) and its quotas by property."""

    entity: Entity
    quotas: Mapping[str, float]


def check_filter(components: Sequence[Component]) -> None:
    """Raises InvalidRequestError for an invalid filter, UnsupportedVersionError for an unknown entity type."""
    types = Counter(one.entity_type for one in each(components))
    for name, count in each(types.items()):
        if not name:
            raise InvalidRequestError("a component of the filter has no entity type")
        if count > 1:
            raise InvalidRequestError(f"entity type {name!r} is in the filter {count} times")
        if name not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"entity type {name!r} is not known")
    if ADDRESS in types and len(types) > 1:
        raise InvalidRequestError(f"entity type {ADDRESS!r} can't be combined with others")
    for one in each(components):
        if one.match_type not in (EXACT, DEFAULT_ONE, ANY):
            raise InvalidRequestError(f"match type {one.match_type} of {one.entity_type} is not known")


def found(configs: Configs, components: Iterable[Component], *, is_strict: bool) -> Iterator[EntityQuotas]:
    """Yields the entities that have quotas and match the filter; with `is_strict` only those of its very types."""
    wanted = {one.entity_type: one for one in components}
    for path, config in each(configs.items()):
        entity = entity_at(path)
        if entity is None or not _fits(entity, wanted, is_strict=is_strict):
            continue
        names = ADDRESS_QUOTAS if ADDRESS in entity else CLIENT_QUOTAS
        values = {name: parse_quota(config[name]) for name in names if name in config}
        quotas = {name: value for name, value in values.items() if value is not None}
        if quotas:
            yield EntityQuotas(entity, quotas)


def _fits(entity: Entity, wanted: Mapping[str, Component], *, is_strict: bool) -> bool:
    if not wanted.keys() <= entity.keys() or (is_strict and wanted.keys() != entity.keys()):
        return False
    names = {kind: one.match if one.match_type == EXACT else None for kind, one in wanted.items()}
    return all(one.match_type == ANY or entity[kind] == names[kind] for kind, one in wanted.items())


class Operation(NamedTuple):
    """A change of the quota `key`: its new value, or None to remove it."""

    key: str
    value: float | None


def altered(config: Mapping[str, str], entity: Entity, operations: Iterable[Operation]) -> dict[str, str]:
    """Returns an entity's properties with the quotas changed. Raises InvalidRequestError for a bad key or value."""
    types = ADDRESS_QUOTAS if ADDRESS in entity else CLIENT_QUOTAS
    after = dict(config)
    for key, value in operations:
        if value is None:
            if key in types:
                after.pop(key, None)
        elif key not in types:
            raise InvalidRequestError(f"{key} is not a quota of this entity; these are: {', '.join(types)}")
        else:
            after[key] = _text(key, value, types[key])
    return after


def _text(key: str, value: float, kind: QuotaType) -> str:
    if not value >= 0:
        raise InvalidRequestError(f"Configuration {key} must be a {kind.name} value of 0 or more, not {value:g}")
    if kind.maximum is None:
        return java_double(value)
    whole = int(min(value + EPSILON, kind.maximum))
    if abs(whole - value) > EPSILON:
        raise InvalidRequestError(
            f"Configuration {key} must be a {kind.name} value, not {value!r}: {key} cannot be a fractional value."
        )
    return str(whole)


def java_double(value: float) -> str:
    """Returns a number of 0 or more as Java's Double.toString does: 0.5, 200.0, 1.0E10, Infinity."""
    if value == float("inf"):
        return "Infinity"
    if value == 0 or PLAIN_FROM <= value < PLAIN_BELOW:
        return repr(value)
    from decimal import Decimal  # noqa: PLC0415 -- for numbers that few quotas have

    number = Decimal(repr(value)).normalize()
    first, *others = map(str, number.as_tuple().digits)
    return f"{first}.{''.join(others) or '0'}E{number.adjusted()}"
