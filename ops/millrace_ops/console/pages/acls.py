"""Access control lists: who may do what, on what."""

from __future__ import annotations

from millrace.client.acls import find_acls
from millrace.errors import BrokerError, ErrorCode
from millrace.security.acls import AclBinding, AclFilter
from millrace_ops.console.console import Console
from millrace_ops.console.listing import listed
from millrace_ops.console.request import Asked, Page


def show_acls(console: Console, asked: Asked) -> Page:
    """Returns the page of all lists; a cluster without an authorizer has none."""
    bindings: list[AclBinding] = []
    has_authorizer = True
    with console.clusters.lent() as cluster:
        try:
            bindings = find_acls(cluster, AclFilter())
        except BrokerError as error:
            if error.broker_code != ErrorCode.SECURITY_DISABLED:
                raise
            has_authorizer = False
    listing = listed(
        bindings,
        asked.query,
        {
            "principal": lambda one: (one.acl.principal, one.pattern.name),
            "resource": lambda one: (one.pattern.resource_type.pascal, one.pattern.name),
            "operation": lambda one: one.acl.operation.pascal,
            "permission": lambda one: one.acl.permission.pascal,
            "host": lambda one: one.acl.host,
        },
        lambda one: f"{one.acl.principal} {one.pattern.resource_type.pascal} {one.pattern.name}",
    )
    return Page("acls.html", {"listing": listing, "has_authorizer": has_authorizer})
