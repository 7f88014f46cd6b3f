"""Records requests that have been answered against the quotas of their client, and tells it the throttle time.

    Produce                       its bytes; its time too, unless acks=0 asks for no response
    Fetch                         by its handler, as a throttled fetch is answered empty; a replica's never
    requests among brokers        not at all, where the client may do the cluster's actions
    all others                    their time, and by their handlers the topics that they change

The longest of these times counts. It is written into the response, which leaves at once, and the connection is muted
for it (KIP-219). The time of a request is that of its handler on the event loop: requests that were handled together
share it, and what one does after it had to wait is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import WireError
from millrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from millrace.wire.api import ApiKey
from millrace.wire.throttle_time import with_throttle_time
from millrace_broker.handlers.api import Reply, Services, Throttled
from millrace_broker.net.slot import Slot
from millrace_broker.quotas.limits import Client
from millrace_broker.security.client_session import ClientSession

AMONG_BROKERS = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    )
)

CLUSTER_ACTION = frozenset((AclOperation.CLUSTER_ACTION,))

Responses = Sequence[Reply | WireError]


def throttled(
    slot: Slot, responses: Responses, services: Services, session: ClientSession, now_ms: int
) -> tuple[Responses, int]:
    """Returns the responses of a slot with their throttle times, and the longest of these in milliseconds."""
    quotas, user = services.quotas, session.principal.name
    is_exempt = _is_exempt(slot.api_key, services, session)
    seconds = (slot.times.handled - slot.times.started) / len(slot.headers)
    told: list[Reply | WireError] = []
    longest_ms = 0
    for response, header in zip(responses, slot.headers, strict=False):
        if isinstance(response, WireError):
            told.append(response)
            continue
        parts, throttle_ms = response if isinstance(response, Throttled) else (response, 0)
        client = Client(user, header.client_id or "")
        if slot.api_key == ApiKey.PRODUCE:
            throttle_ms = quotas.produced(client, header.size_bytes, now_ms)
        if not is_exempt and parts is not None:
            throttle_ms = max(throttle_ms, quotas.used(client, seconds, now_ms))
        if throttle_ms and isinstance(parts, list):
            parts = with_throttle_time(slot.api_key, slot.version, parts, throttle_ms)
        told.append(parts)
        longest_ms = max(longest_ms, throttle_ms)
    return told, longest_ms


def _is_exempt(api_key: int, services: Services, session: ClientSession) -> bool:
    """Returns whether a request's time is not recorded: a fetch's, or that of a permitted request among brokers."""
    if api_key not in AMONG_BROKERS:
        return api_key == ApiKey.FETCH
    access = services.authorizer
    return access is None or bool(access.operations(session, CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
