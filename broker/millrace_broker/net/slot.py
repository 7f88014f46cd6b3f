"""A place in the line of a connection: it holds requests until they are handled, and replies until they leave.

Requests that have been answered are recorded against the quotas of their client, which is told the throttle time:

    Produce                       its bytes; its time too, unless acks=0 asks for no response
    Fetch                         by its handler, as a throttled fetch is answered empty; a replica's never
    requests among brokers        not at all, where the client may do the cluster's actions
    all others                    their time, and by their handlers the topics that they change

The longest of these times counts. It is written into the response, which leaves at once, and the connection is muted
for it (KIP-219). The time of a request is that of its handler on the event loop: requests that were handled together
share it, and what one does after it had to wait is not measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from millrace.errors import UnsupportedVersionError, WireError
from millrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from millrace.wire.api import ApiKey
from millrace.wire.encoder import Parts
from millrace.wire.header import RequestHeader, start_of_responses
from millrace.wire.throttle_time import with_throttle_time
from millrace_broker.handlers.api import Api, Later, Reply, Request, Response, Services, Throttled
from millrace_broker.metrics import ApiCount, RequestTimes
from millrace_broker.quotas.limits import Client
from millrace_broker.security.client_session import ClientSession

SMALL_REPLIES_BYTES = 16 << 10
LONG_BYTES = 4 << 10  # of a request: a thousand entries of some bytes each

Waited = Later | asyncio.Future[list[Response]]  # for one reply, or for several


class Slot:
    """The place of one request, or of several of one kind handled together, in the order of a connection's replies."""

    __slots__ = (
        "answered", "api", "api_key", "arrived", "bytes_in", "bytes_out", "count", "future", "headers",
        "is_alone", "is_long", "parts", "reply_bytes", "requests", "times", "version",
    )  # fmt: skip

    def __init__(self, api: Api, api_key: int, version: int, arrived: float, *, is_long: bool) -> None:
        self.api = api
        self.is_long = is_long  # its only request has turns of its own
        self.is_alone = is_long or api.handle_all is None
        self.api_key = api_key
        self.version = version
        self.arrived = arrived
        self.bytes_in = 0
        self.bytes_out = 0
        self.headers: list[RequestHeader] = []
        self.requests: list[Request] = []
        self.times: RequestTimes
        self.answered: float  # when the replies were there, by the clock of `times`
        self.count: ApiCount
        self.reply_bytes: list[int] = []  # of each request's reply; 0 for one that wants none
        self.future: Waited | None = None  # of replies that come later
        self.parts: Parts | None = None  # the frames of all replies; None until they are there

    def leaves_out(self, size_bytes: int, body: memoryview) -> bool:
        """Returns whether another request of this API and version takes too long to be handled with those here."""
        return size_bytes > LONG_BYTES and takes_long(self.api, self.version, body)

    def take_replies(self, responses: Sequence[Reply | WireError]) -> int | None:
        """Sets `parts` to the frames of the responses; returns their size in bytes, None if one is still a future."""
        parts: Parts = []
        start, start_bytes = start_of_responses(self.api_key, self.version)
        for header, message in zip(self.headers, responses, strict=False):
            if not isinstance(message, list):
                if isinstance(message, asyncio.Future):
                    self.reply_bytes.clear()
                    return None
                self.reply_bytes.append(0)
                continue
            size_bytes = start_bytes + (len(message[0]) if len(message) == 1 else sum(map(len, message)))
            self.reply_bytes.append(size_bytes)
            parts.append(start.pack(size_bytes, header.correlation_id))
            parts += message
        reply_bytes = self.bytes_out = sum(self.reply_bytes)
        is_small = reply_bytes < SMALL_REPLIES_BYTES  # so none of them is a region of a file
        self.parts = [b"".join(parts)] if is_small else parts  # type: ignore[arg-type]
        return reply_bytes


def takes_long(api: Api, version: int, body: memoryview) -> bool:
    """Returns whether a request of more than `LONG_BYTES` is handled alone, and interrupted (`net.long_requests`)."""
    return api.handle_all is None or (api.has_many is not None and api.has_many(version, body))


def served(apis: Mapping[int, Api], header: RequestHeader) -> Api:
    """Returns the API of a request by its header; raises UnsupportedVersionError for an unserved API or version."""
    api = apis.get(header.api_key)
    if api is None:
        raise UnsupportedVersionError(f"API key {header.api_key} is not served")
    minimum, maximum = api.versions
    if not minimum <= header.api_version <= maximum and api.key != ApiKey.API_VERSIONS:
        raise UnsupportedVersionError(
            f"{api.key.name} v{header.api_version} is not served; v{minimum} to v{maximum} are"
        )
    return api


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

BRINGS_RECORDS = frozenset((ApiKey.PRODUCE, ApiKey.APPEND_MIRRORED))

CLUSTER_ACTION = frozenset((AclOperation.CLUSTER_ACTION,))

Responses = Sequence[Reply | WireError]


def throttled(
    slot: Slot, responses: Responses, services: Services, session: ClientSession, now_ms: int
) -> tuple[Responses, int]:
    """Returns a slot's responses with their throttle times written into them, and the longest throttle time in ms."""
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
        if slot.api_key in BRINGS_RECORDS:
            throttle_ms = quotas.produced(client, header.size_bytes, now_ms)
        if not is_exempt and parts is not None:
            throttle_ms = max(throttle_ms, quotas.used(client, seconds, now_ms))
        if throttle_ms and isinstance(parts, list):
            parts = with_throttle_time(slot.api_key, slot.version, parts, throttle_ms)
        told.append(parts)
        longest_ms = max(longest_ms, throttle_ms)
    return told, longest_ms


def _is_exempt(api_key: int, services: Services, session: ClientSession) -> bool:
    """Returns whether the request quota ignores a request: a fetch, or a broker's, from a client that may send it."""
    if api_key not in AMONG_BROKERS:
        return api_key == ApiKey.FETCH
    access = services.authorizer
    return access is None or bool(access.operations(session, CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
