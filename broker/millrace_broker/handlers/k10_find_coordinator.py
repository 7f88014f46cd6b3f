"""FindCoordinator, versions 0 to 6.

    v0  one key      v1  key type, throttle time, message      v3  flexible      v4  many keys in one request (KIP-699)

The coordinator of a group is the leader of its partition of `__consumer_offsets`. The coordinator of a transactional id
is the leader of its partition of `__transaction_state`. The first request creates the topic, whose partitions count for
the client's quota of changes. Other types of keys are INVALID_REQUEST. A coordinator without the listener by which the
request came is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.error_codes import error_sentence
from millrace.errors import CoordinatorNotAvailableError, ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import FIND_COORDINATOR
from millrace_broker.cluster.coordinator_topic import CoordinatorTopic
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.handlers.topics import NEVER_STRICT, Mutations

if TYPE_CHECKING:
    from millrace.wire.messages.find_coordinator import CoordinatorFields, FindCoordinatorResponseFields

FIRST_BATCHED_VERSION = 4
NO_ERROR = "NONE"  # what Kafka's message says up to version 3 where there is no error
GROUP = 0
TRANSACTION = 1
GUARD = Guard(ApiKey.FIND_COORDINATOR, AclOperation.DESCRIBE, ResourceType.GROUP)
TRANSACTION_GUARD = Guard(ApiKey.FIND_COORDINATOR, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


class _Search(NamedTuple):
    """The group or transactional ids (`keys`) whose coordinators a client asks for, by the address on its `listener`.

    The client has no right to the keys in `denied`, whose error is `denial`.
    """

    topic: CoordinatorTopic
    listener: str
    keys: Sequence[str]
    denied: Collection[str]
    denial: ErrorCode

    def found(self) -> list[CoordinatorFields]:
        """Returns the coordinator of each key, or the error of a key that has none or is denied."""
        topic, listener = self.topic, self.listener
        return [self._denied(key) if key in self.denied else _located(topic, key, listener) for key in each(self.keys)]

    def failed(self, message: str) -> list[CoordinatorFields]:
        """Returns COORDINATOR_NOT_AVAILABLE with the message for each key, and `denial` for a denied one."""
        none = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return [self._denied(key) if key in self.denied else _none(key, none, message) for key in self.keys]

    def _denied(self, key: str) -> CoordinatorFields:
        return _none(key, self.denial, error_sentence(self.denial))


def handle(services: Services, request: Request) -> Reply:
    """Handles FindCoordinator for each key; creates the internal topic of the coordinators if it is missing."""
    message = FIND_COORDINATOR.decode_request(request.version, request.body)
    keys = message.coordinator_keys if request.version >= FIRST_BATCHED_VERSION else (message.key,)
    key_type = message.key_type
    topic = _topic(services, key_type)
    if topic is None:
        message_text = f"key type {key_type}: expected 0 (group) or 1 (transaction)"
        refused = [_none(key, ErrorCode.INVALID_REQUEST, message_text) for key in keys]
        return _respond(services, request.version, refused)
    guard = GUARD if key_type == GROUP else TRANSACTION_GUARD
    denied = {key for key in keys if not guard.permits(services, request.session, key)}
    search = _Search(topic, request.session.listener, keys, denied, guard.error)
    if topic.exists or len(denied) == len(set(keys)):
        return _respond(services, request.version, search.found())
    mutations = Mutations(services, request, NEVER_STRICT)
    return later(_create_and_respond(services, request.version, search, mutations))


def _topic(services: Services, key_type: int) -> CoordinatorTopic | None:
    if key_type == GROUP:
        return services.groups.topic
    return services.txns.topic if key_type == TRANSACTION else None


async def _create_and_respond(services: Services, version: int, search: _Search, mutations: Mutations) -> Parts:
    try:
        await search.topic.create(mutations.charge)
    except MillraceError as error:
        return _respond(services, version, search.failed(f"{search.topic.name} can't be created: {error}"))
    return _respond(services, version, search.found())


def _respond(services: Services, version: int, coordinators: list[CoordinatorFields]) -> Parts:
    if version >= FIRST_BATCHED_VERSION:
        fields: FindCoordinatorResponseFields = {"throttle_time": 0, "coordinators": coordinators}
    else:
        (one,) = coordinators
        fields = {
            "throttle_time": 0,
            "error_code": one["error_code"],
            "error_message": one["error_message"] or NO_ERROR,
            "node_id": one["node_id"],
            "host": one["host"],
            "port": one["port"],
        }
    return respond(services, FIND_COORDINATOR, version, fields)


def _located(topic: CoordinatorTopic, key: str, listener: str) -> CoordinatorFields:
    try:
        broker = topic.locate(key)
    except CoordinatorNotAvailableError as error:
        return _none(key, error.code, str(error))
    if broker is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name} does not exist")
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker.id} has no listener {listener}")
    return {
        "key": key,
        "node_id": broker.id,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }


def _none(key: str, code: ErrorCode, message: str) -> CoordinatorFields:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


API = Api(ApiKey.FIND_COORDINATOR, VersionRange(0, 6), handle, guards=(GUARD, TRANSACTION_GUARD))
