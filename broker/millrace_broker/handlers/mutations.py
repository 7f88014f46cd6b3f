"""The quota of changes (KIP-599) for requests that create or delete topics and partitions."""

from __future__ import annotations

from millrace.config import MAX_INT
from millrace.wire.encoder import Parts
from millrace_broker.handlers.api import Request, Services, Throttled
from millrace_broker.quotas.limits import Client

NEVER_STRICT = MAX_INT  # a topic that is created on the way counts, but the client is not throttled for it


class Mutations:
    """The changes of one request; above the quota they are refused from `first_strict_version` on, before throttled."""

    def __init__(self, services: Services, request: Request, first_strict_version: int) -> None:
        self._now_ms = services.clock.monotonic_ms
        client = Client(request.session.principal.name, request.client_id or "")
        is_strict = request.version >= first_strict_version
        self._quota = services.quotas.mutations(client, self._now_ms(), is_strict=is_strict)

    def charge(self, partitions: int) -> None:
        """Counts partitions that are about to be made or deleted.

        Raises ThrottlingQuotaExceededError if that has to wait.
        """
        self._quota.record(partitions, self._now_ms())

    def respond(self, parts: Parts) -> Parts | Throttled:
        """Returns the response, and with it how long the client is throttled."""
        throttle_ms = self._quota.throttle_ms(self._now_ms())
        return Throttled(parts, throttle_ms) if throttle_ms else parts
