"""The operations that a client may do, as bits by the numbers of ACL operations (KIP-430).

There are no ACLs, so every operation that the resource has is allowed.
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Operations, by the protocol's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_BOTH = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_GROUPS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = sum(1 << one for one in (*_BOTH, AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE))
TOPIC_OPERATIONS = sum(1 << one for one in (*_BOTH, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE))
GROUP_OPERATIONS = sum(1 << one for one in _OF_GROUPS)
