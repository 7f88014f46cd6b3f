"""The interface of an authorizer, which says who may do what, the access that handlers ask for, and the audit log.

`authorizer.class.name` names one: Kafka's names stand for `AclAuthorizer`, `module:Class` for another class, which is
made with the broker's properties. An authorizer is asked on the event loop for every request, so it answers at once.

The audit log says who was allowed or denied what, in the manner of Kafka's `kafka.authorizer.logger`:

    logger    millrace_broker.authorizer
    denied    INFO
    allowed   DEBUG

A client can repeat a request that is denied as fast as it likes. So a line is written once in ten seconds, of at most a
thousand different ones; how many were left out is told when the next ten seconds begin. What clients name is written
without control characters, and not beyond 256 characters, so no client can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from millrace.security.acls import AclOperation, Acls, ResourceType
from millrace_broker.log_lines.output import AUDIT
from millrace_broker.security.client_session import ClientSession

logger = logging.getLogger(AUDIT)

WINDOW_MS = 10_000
MAX_LINES = 1_000
MAX_CHARACTERS = 256


class AuditLog:
    """Logs which operations were allowed and denied to whom; `now_ms` returns the time in ms."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._written: set[str] = set()
        self._left_out = 0

    @property
    def tells_allowed(self) -> bool:
        """Returns whether allowed operations are logged, and not only denied ones."""
        return logger.isEnabledFor(logging.DEBUG)

    def note(
        self,
        session: ClientSession,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        request: str,
        *,
        permitted: bool,
    ) -> None:
        """Writes a decision to the log, unless the same line was written within WINDOW_MS; `request` is the API."""
        self._begin_again()
        line = (
            f"Principal = {_shown(str(session.principal))} is {'Allowed' if permitted else 'Denied'} "
            f"Operation = {operation.pascal} from host = {_shown(session.host)} "
            f"on resource = {resource_type.pascal}:LITERAL:{_shown(name)} for request = {_pascal(request)}"
        )
        if line in self._written or len(self._written) >= MAX_LINES:
            self._left_out += 1
            return
        self._written.add(line)
        logger.log(logging.DEBUG if permitted else logging.INFO, "%s", line)

    def _begin_again(self) -> None:
        now = self._now_ms()
        if now - self._began_ms < WINDOW_MS:
            return
        if self._left_out:
            logger.info("%d more decisions, most of them the same, were left out", self._left_out)
        self._began_ms, self._left_out = now, 0
        self._written.clear()


def _pascal(name: str) -> str:
    """Returns an API's name as in Kafka's log: ListOffsets for `LIST_OFFSETS`."""
    return name.title().replace("_", "")


def _shown(text: str) -> str:
    shown = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text[:MAX_CHARACTERS])
    return shown if len(text) <= MAX_CHARACTERS else f"{shown}…"


class Authorizer(Protocol):
    """Decides which operations clients may do on which resources; the broker has one, or none."""

    def authorize(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether a client may do an operation on the resource of this name."""
        ...

    def authorize_by_resource_type(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the client may do the operation on at least one possible resource of the type (KIP-679)."""
        ...

    def take(self, acls: Acls) -> None:
        """Replaces all access control lists of the cluster; called after each change of them."""
        ...


class PluggableAuthorizer(Protocol):
    """A class that `authorizer.class.name` names as MODULE:CLASS, which makes an authorizer."""

    def __call__(self, properties: Mapping[str, str]) -> Authorizer:
        """Returns an authorizer that is made with the broker's properties."""
        ...


class Access:
    """Asks the authorizer what clients may do, and writes the decisions to the audit log."""

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
        """Returns whether a client may do an operation of the API `request`; logs a denial if `tells_denied`."""
        permitted = self._authorizer.authorize(session, operation, resource_type, name)
        if self._audit.tells_allowed if permitted else tells_denied:
            self._audit.note(session, operation, resource_type, name, request, permitted=permitted)
        return permitted

    def permits_on_any(
        self, session: ClientSession, operation: AclOperation, resource_type: ResourceType, request: str
    ) -> bool:
        """Returns whether a client may do an operation of the API `request` on some resource of a type; logs that."""
        permitted = self._authorizer.authorize_by_resource_type(session, operation, resource_type)
        if self._audit.tells_allowed or not permitted:
            self._audit.note(session, operation, resource_type, "any", request, permitted=permitted)
        return permitted

    def operations(
        self, session: ClientSession, operations: frozenset[AclOperation], resource_type: ResourceType, name: str
    ) -> frozenset[AclOperation]:
        """Returns those of the operations that a client may do on a resource, without writing to the audit log."""
        return frozenset(one for one in operations if self._authorizer.authorize(session, one, resource_type, name))
