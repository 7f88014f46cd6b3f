"""The keys of the APIs, the first version of each whose messages are flexible (KIP-482), and ranges of versions."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self


class ApiKey(IntEnum):
    """The APIs whose messages Millrace encodes and decodes.

    Millrace serves or calls all of them, except for some between a controller and its brokers: 4 to 7, 56 and 67.
    `first_flexible` is the first version with compact lengths and tagged fields (KIP-482).
    """

    first_flexible: int

    def __new__(cls, key: int, first_flexible: int = 0) -> Self:
        """Makes a member from its API key and its first flexible version."""
        member = int.__new__(cls, key)
        member._value_ = key
        member.first_flexible = first_flexible
        return member

    PRODUCE = 0, 9
    FETCH = 1, 12
    LIST_OFFSETS = 2, 6
    METADATA = 3, 9
    LEADER_AND_ISR = 4, 4
    STOP_REPLICA = 5, 2
    UPDATE_METADATA = 6, 6
    CONTROLLED_SHUTDOWN = 7, 3
    OFFSET_COMMIT = 8, 8
    OFFSET_FETCH = 9, 6
    FIND_COORDINATOR = 10, 3
    JOIN_GROUP = 11, 6
    HEARTBEAT = 12, 4
    LEAVE_GROUP = 13, 4
    SYNC_GROUP = 14, 4
    DESCRIBE_GROUPS = 15, 5
    LIST_GROUPS = 16, 3
    SASL_HANDSHAKE = 17, 2  # never: its versions are 0 and 1
    API_VERSIONS = 18, 3
    CREATE_TOPICS = 19, 5
    DELETE_TOPICS = 20, 4
    DELETE_RECORDS = 21, 2
    INIT_PRODUCER_ID = 22, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 4
    ADD_PARTITIONS_TO_TXN = 24, 3
    ADD_OFFSETS_TO_TXN = 25, 3
    END_TXN = 26, 3
    WRITE_TXN_MARKERS = 27, 1
    TXN_OFFSET_COMMIT = 28, 3
    DESCRIBE_ACLS = 29, 2
    CREATE_ACLS = 30, 2
    DELETE_ACLS = 31, 2
    DESCRIBE_CONFIGS = 32, 4
    ALTER_CONFIGS = 33, 2
    ALTER_REPLICA_LOG_DIRS = 34, 2
    DESCRIBE_LOG_DIRS = 35, 2
    SASL_AUTHENTICATE = 36, 2
    CREATE_PARTITIONS = 37, 2
    CREATE_DELEGATION_TOKEN = 38, 2
    RENEW_DELEGATION_TOKEN = 39, 2
    EXPIRE_DELEGATION_TOKEN = 40, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 2
    DELETE_GROUPS = 42, 2
    ELECT_LEADERS = 43, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0
    OFFSET_DELETE = 47, 1  # never: its only version is 0
    DESCRIBE_CLIENT_QUOTAS = 48, 1
    ALTER_CLIENT_QUOTAS = 49, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0
    ALTER_PARTITION = 56, 0
    DESCRIBE_CLUSTER = 60, 0
    DESCRIBE_PRODUCERS = 61, 0
    DESCRIBE_TRANSACTIONS = 65, 0
    LIST_TRANSACTIONS = 66, 0
    ALLOCATE_PRODUCER_IDS = 67, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0
    CONSUMER_GROUP_DESCRIBE = 69, 0
    LIST_CONFIG_RESOURCES = 74, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0
    APPEND_MIRRORED = 30_000, 0  # Millrace's own (`wire.own_apis`)


FIRST_FLEXIBLE_VERSION: dict[int, int] = {key: key.first_flexible for key in ApiKey}


class VersionRange(NamedTuple):
    """The versions of an API from `minimum` to `maximum`, both included."""

    minimum: int
    maximum: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.minimum <= version <= self.maximum


def is_flexible(api_key: int, version: int) -> bool:
    """Returns whether messages of an API's version have compact lengths and tagged fields (KIP-482)."""
    return version >= FIRST_FLEXIBLE_VERSION[api_key]
