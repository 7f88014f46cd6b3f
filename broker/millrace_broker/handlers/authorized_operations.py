"""The operations that a client may do on a resource, as bits by the numbers of ACL operations (KIP-430).

Without an authorizer, they are all that the resource has.
"""

from __future__ import annotations

from millrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from millrace_broker.handlers.api import Services
from millrace_broker.security.client_session import ClientSession

NO_OPERATIONS = 0
_BOTH = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
OPERATIONS = {
    ResourceType.TOPIC: frozenset((*_BOTH, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)),
    ResourceType.CLUSTER: frozenset((*_BOTH, AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE)),
    ResourceType.GROUP: frozenset(
        (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        )
    ),
}


def authorized_operations(
    services: Services, session: ClientSession, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Returns the bits of what a client may do on a resource."""
    operations = OPERATIONS[resource_type]
    if services.authorizer is not None:
        operations = services.authorizer.operations(session, operations, resource_type, name)
    return sum(1 << one for one in operations)
