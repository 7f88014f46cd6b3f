"""API keys, the version of each from which messages are flexible (KIP-482), and ranges of versions."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """The APIs that Millrace serves or calls."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23


FIRST_FLEXIBLE_VERSION = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
}


class VersionRange(NamedTuple):
    """From `minimum` to `maximum`, both served."""

    minimum: int
    maximum: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.minimum <= version <= self.maximum


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a message has compact lengths and tagged fields."""
    return version >= FIRST_FLEXIBLE_VERSION[ApiKey(api_key)]
