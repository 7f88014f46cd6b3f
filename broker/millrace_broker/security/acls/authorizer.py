"""The interface of an authorizer, which says who may do what, and the access that handlers ask for.

`authorizer.class.name` names one: Kafka's names stand for `AclAuthorizer`, `module:Class` for another class, which is
made with the broker's properties. An authorizer is asked on the event loop for every request, so it answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from millrace.security.acls import AclOperation, Acls, ResourceType
from millrace_broker.security.acls.audit_log import AuditLog
from millrace_broker.security.client_session import ClientSession


class Authorizer(Protocol):
    """Says who may do what."""

    def authorize(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether a client may do an operation on the resource of this name."""
        ...

    def authorize_by_resource_type(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether there can be a resource of the type on which the client may do the operation (KIP-679)."""
        ...

    def take(self, acls: Acls) -> None:
        """Takes over all access control lists of the cluster, at the start and after each change."""
        ...


class PluggableAuthorizer(Protocol):
    """What the class of `module:Class` has to be."""

    def __call__(self, properties: Mapping[str, str]) -> Authorizer:
        """Makes the authorizer with the properties that the broker was given."""
        ...


class Access:
    """What clients may do, by an authorizer; each decision about what a client asked for goes to the audit log."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self.take = authorizer.take

    def permits(
        self,
        session: ClientSession,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        request: str,
        *,
        tells_denied: bool = True,
    ) -> bool:
        """Returns whether a client may do an operation; `tells_denied` says whether a denial is logged."""
        permitted = self._authorizer.authorize(session, operation, resource_type, name)
        if self._audit.tells_allowed if permitted else tells_denied:
            self._audit.note(session, operation, resource_type, name, request, permitted=permitted)
        return permitted

    def permits_on_any(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, request: str
    ) -> bool:
        """Returns whether a client may do an operation on some resource of a type."""
        permitted = self._authorizer.authorize_by_resource_type(session, operation, resource_type)
        if self._audit.tells_allowed or not permitted:
            self._audit.note(session, operation, resource_type, "any", request, permitted=permitted)
        return permitted

    def operations(
        self, session: ClientSession, operations: frozenset[AclOperation], resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Returns those of the operations that a client may do; nothing goes to the audit log."""
        return frozenset(one for one in operations if self._authorizer.authorize(session, one, resource_type, name))
