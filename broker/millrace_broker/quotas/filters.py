"""Which entities with quotas a request asks for (KIP-546): a filter has one component for each type of entity.

    exact       the entity has this name        default    it is the default one
    any         it has a name of this type      strict     it has no types besides those of the filter

So the filter `user: any` finds users, and their clients too unless it is strict; the empty filter finds everything, or
nothing where it is strict. Addresses are found by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import InvalidRequestError, UnsupportedVersionError
from millrace.turns import each
from millrace_broker.quotas.entities import ADDRESS, ENTITY_TYPES, Entity, entity_at
from millrace_broker.quotas.kinds import ADDRESS_QUOTAS, CLIENT_QUOTAS, parse_quota
from millrace_broker.quotas.limits import Configs

EXACT, DEFAULT, ANY = range(3)


class Component(NamedTuple):
    """What a filter wants of the entities of one type; `match` is the name of an exact one."""

    entity_type: str
    match_type: int
    match: str | None


class EntityQuotas(NamedTuple):
    """An entity and its quotas by property."""

    entity: Entity
    quotas: Mapping[str, float]


def check_filter(components: Sequence[Component]) -> None:
    """Raises InvalidRequestError or UnsupportedVersionError for a type of entity that is not known."""
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
        if one.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidRequestError(f"match type {one.match_type} of {one.entity_type} is not known")


def found(configs: Configs, components: Iterable[Component], *, is_strict: bool) -> Iterator[EntityQuotas]:
    """Yields the entities that a filter finds and that have quotas."""
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
    return all(one.match_type == ANY or entity[name] == _name(one) for name, one in wanted.items())


def _name(component: Component) -> str | None:
    return component.match if component.match_type == EXACT else None
