"""DeleteTopics, versions 0 to 6.

v0  topics by name      v1  throttle time      v3  may say that deletion is disabled
v4  flexible            v5  an error message in the response; refuses while the client's quota of changes is exceeded
v6  by name or by id
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError, UnknownTopicIdError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_TOPICS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, Throttled
from millrace_broker.handlers.mutations import Mutations
from millrace_broker.handlers.responses import respond
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.delete_topics import DeletableTopicResultFields, DeleteTopicsResponseFields

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_STRICT_VERSION = 5
FIRST_VERSION_WITH_TOPIC_IDS = 6
GUARD = Guard(ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.TOPIC)
DESCRIBE_GUARD = Guard(ApiKey.DELETE_TOPICS, AclOperation.DESCRIBE, ResourceType.TOPIC)

_Asked = tuple[str | None, UUID | None]  # a topic's name, or its id


def handle(services: Services, request: Request) -> Reply:
    """Deletes each topic."""
    message = DELETE_TOPICS.decode_request(request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        asked: list[_Asked] = [(topic.name, topic.topic_id) for topic in each(message.topics)]
    else:
        asked = [(name, None) for name in message.topic_names]
    mutations = Mutations(services, request, FIRST_STRICT_VERSION)
    return later(_delete(services, request.without_body(), asked, message.timeout, mutations))


async def _delete(
    services: Services,
    request: Request,
    asked: list[_Asked],
    within: timedelta,
    mutations: Mutations,
) -> Parts | Throttled:
    delete = partial(_delete_topic, services, request.session, mutations, within)
    results = [await delete(one, times=count) for one, count in each(Counter(each(asked)).items())]
    for result in each(results):
        is_disabled = result["error_code"] is ErrorCode.TOPIC_DELETION_DISABLED
        if is_disabled and request.version < FIRST_VERSION_WITH_DELETION_DISABLED:
            result["error_code"] = ErrorCode.INVALID_REQUEST
    fields: DeleteTopicsResponseFields = {"throttle_time": 0, "responses": results}
    return mutations.respond(respond(services, DELETE_TOPICS, request.version, fields))


async def _delete_topic(
    services: Services, session: ClientSession, mutations: Mutations, within: timedelta, asked: _Asked, *, times: int
) -> DeletableTopicResultFields:
    name, topic_id = asked
    result: DeletableTopicResultFields = {
        "name": name,
        "topic_id": topic_id or NO_TOPIC_ID,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
    try:
        if times > 1:
            raise InvalidRequestError(f"duplicate topic: {name or topic_id} is named {times} times")
        found = _name_of(services, name, topic_id)
        if topic_id and DESCRIBE_GUARD.permits(services, session, found):
            result["name"] = found
        if services.config.delete_topic_enable:  # otherwise `delete` refuses
            GUARD.check(services, session, found)
        deleted = await services.topics.delete(found, within=within, charge=mutations.charge)
        result |= {"name": deleted.name, "topic_id": deleted.topic_id}
    except MillraceError as error:
        result |= {"error_code": error.code, "error_message": str(error)}
    return result


def _name_of(services: Services, name: str | None, topic_id: UUID | None) -> str:
    if (name is None) == (not topic_id):
        raise InvalidRequestError("each topic needs either a name or an id")
    found = services.metadata.topic_name(topic_id) if topic_id else name
    if found is None:
        raise UnknownTopicIdError(f"no topic has id {topic_id}")
    return found


API = Api(ApiKey.DELETE_TOPICS, VersionRange(0, 6), handle, guards=(GUARD, DESCRIBE_GUARD))
