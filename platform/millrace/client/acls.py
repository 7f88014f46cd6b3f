"""Finds, creates and deletes access control lists of a cluster (DescribeAcls, CreateAcls, DeleteAcls).

When a change returns, the broker that was asked obeys it; the others follow a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace.wire.messages import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS

if TYPE_CHECKING:
    from millrace.wire.messages.create_acls import CreateAclsRequestFields
    from millrace.wire.messages.delete_acls import DeleteAclsMatchingAcl, DeleteAclsRequestFields
    from millrace.wire.messages.describe_acls import DescribeAclsRequestFields


def find_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    """Returns the bindings that a filter finds, sorted. Every error, SECURITY_DISABLED included, is a BrokerError."""

    def action(connection: Connection) -> list[AclBinding]:
        answer = connection.request(DESCRIBE_ACLS, _filter(wanted))
        check(answer.error_code, "access control lists", answer.error_message)
        return [
            AclBinding(
                _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
                _acl(one.principal, one.host, one.operation, one.permission_type),
            )
            for resource in answer.resources
            for one in resource.acls
        ]

    return sorted(cluster.on_any(action))


def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> None:
    """Creates bindings that don't exist yet.

    Raises BrokerError for the first that is refused: others may be created.
    """
    fields: CreateAclsRequestFields = {
        "creations": [
            {
                "resource_type": pattern.resource_type,
                "resource_name": pattern.name,
                "resource_pattern_type": pattern.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for pattern, acl in bindings
        ]
    }

    def action(connection: Connection) -> None:
        answer = connection.request(CREATE_ACLS, fields)
        for (pattern, _), result in zip(bindings, answer.results, strict=True):
            subject = f"ACL of {pattern.resource_type.pascal} {pattern.name}"
            check(result.error_code, subject, result.error_message)

    cluster.on_any(action)


def delete_acls(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[AclBinding]:
    """Deletes the bindings that filters find, and returns them, sorted.

    Raises BrokerError for the first that is refused.
    """
    fields: DeleteAclsRequestFields = {"filters": [_filter(one) for one in wanted]}

    def action(connection: Connection) -> list[AclBinding]:
        answer = connection.request(DELETE_ACLS, fields)
        for result in answer.filter_results:
            check(result.error_code, "access control lists", result.error_message)
        return [_deleted(one) for result in answer.filter_results for one in result.matching_acls]

    return sorted(cluster.on_any(action))


def _deleted(one: DeleteAclsMatchingAcl) -> AclBinding:
    pattern = _pattern(one.resource_type, one.resource_name, one.pattern_type)
    check(one.error_code, f"ACL of {pattern.resource_type.pascal} {pattern.name}", one.error_message)
    return AclBinding(pattern, _acl(one.principal, one.host, one.operation, one.permission_type))


def _filter(wanted: AclFilter) -> DescribeAclsRequestFields:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type))


def _acl(principal: str, host: str, operation: int, permission: int) -> Acl:
    return Acl(principal, host, AclOperation(operation), PermissionType(permission))
