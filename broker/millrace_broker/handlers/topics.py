"""CreateTopics, DeleteTopics and CreatePartitions, under the quota of changes (KIP-599).

    CreateTopics      v0 to v7   v0  topic and error code    v1  error message, validate only    v2  throttle time
                                 v4  partitions and replication factor -1: the broker's default
                                 v5  flexible; the response describes the topic and its configuration
                                 v6  refuses topics while the client's quota of changes is exceeded    v7  topic id
    DeleteTopics      v0 to v6   v0  topics by name    v1  throttle time    v3  may say that deletion is disabled
                                 v4  flexible    v5  an error message; refuses while the quota of changes is exceeded
                                 v6  by name or by id
    CreatePartitions  v0 to v3   a topic grows to `count` partitions (KIP-195); v2  flexible
                                 v3  refuses while the quota of changes is exceeded

Manual assignments are taken as given. Each topic succeeds or fails by itself; one that is named twice fails. The
response to CreateTopics is encoded in a worker thread, as it may have every property of many topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.config import MAX_INT
from millrace.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidRequestError,
    MillraceError,
    TopicAuthorizationError,
    UnknownTopicIdError,
)
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from millrace_broker.cluster.metadata_image import TopicInfo
from millrace_broker.cluster.topics import check_new_partitions
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, Throttled
from millrace_broker.handlers.responses import count_errors, error_codes, respond
from millrace_broker.quotas.limits import Client
from millrace_broker.security.client_session import ClientSession

if TYPE_CHECKING:
    from millrace.wire.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponseFields,
        CreatePartitionsTopic,
        CreatePartitionsTopicResultFields,
    )
    from millrace.wire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResultFields,
        CreateTopicsRequest,
        CreateTopicsResponseFields,
    )
    from millrace.wire.messages.delete_topics import DeletableTopicResultFields, DeleteTopicsResponseFields


NEVER_STRICT = MAX_INT  # a topic that is created on the way counts, but the client is not throttled for it


class Mutations:
    """Counts the partitions that a request makes and deletes against its client's quota of changes.

    Above the quota, requests from `first_strict_version` on are refused; older ones are served, and then throttled.
    """

    def __init__(self, services: Services, request: Request, first_strict_version: int) -> None:
        self._now_ms = services.clock.monotonic_ms
        client = Client(request.session.principal.name, request.client_id or "")
        is_strict = request.version >= first_strict_version
        self._quota = services.quotas.mutations(client, self._now_ms(), is_strict=is_strict)

    def charge(self, partitions: int) -> None:
        """Counts so many partitions that are about to be made or deleted.

        Raises ThrottlingQuotaExceededError where the quota is exceeded and the request's version is refused for that.
        """
        self._quota.record(partitions, self._now_ms())

    def respond(self, parts: Parts) -> Parts | Throttled:
        """Returns the response's parts, or Throttled with the throttle time where the client has exceeded its quota."""
        throttle_ms = self._quota.throttle_ms(self._now_ms())
        return Throttled(parts, throttle_ms) if throttle_ms else parts


DEFAULT = -1
CREATE_GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.CLUSTER, is_silent=True)
CREATE_TOPIC_GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.TOPIC)
CONFIG_GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, is_silent=True)
FIRST_STRICT_CREATION = 6
FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_STRICT_DELETION = 5
FIRST_VERSION_WITH_TOPIC_IDS = 6
DELETE_GUARD = Guard(ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.TOPIC)
DESCRIBE_GUARD = Guard(ApiKey.DELETE_TOPICS, AclOperation.DESCRIBE, ResourceType.TOPIC)
_Asked = tuple[str | None, UUID | None]  # a topic's name, or its id
FIRST_STRICT_GROWTH = 3
GROW_GUARD = Guard(ApiKey.CREATE_PARTITIONS, AclOperation.ALTER, ResourceType.TOPIC)


def create_topics(services: Services, request: Request) -> Reply:
    """Handles CreateTopics: creates each topic, or with `validate_only` checks whether it could be created."""
    message = CREATE_TOPICS.decode_request(request.version, request.body)
    mutations = Mutations(services, request, FIRST_STRICT_CREATION)
    return later(_create_each(services, request.without_body(), message, mutations))


async def _create_each(
    services: Services, request: Request, message: CreateTopicsRequest, mutations: Mutations
) -> Parts | Throttled:
    may_create_all = CREATE_GUARD.permits(services, request.session)
    times = Counter(topic.name for topic in message.topics)
    asked = {topic.name: topic for topic in message.topics}
    new_partitions = sum(max(topic.num_partitions, len(topic.assignments), 1) for topic in asked.values())
    results: list[CreatableTopicResultFields] = []
    for topic in asked.values():
        shows = CONFIG_GUARD.permits(services, request.session, topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequestError(f"duplicate topic name: {topic.name} is named {times[topic.name]} times")
            if not may_create_all:
                CREATE_TOPIC_GUARD.check(services, request.session, topic.name)
            check_new_partitions(new_partitions)
            created = await _create_topic(services, topic, message, mutations)
            results.append(
                _created(services, created, validate_only=message.validate_only)
                if shows
                else _without_config(topic.name, ErrorCode.NONE, None, CONFIG_GUARD.error)
            )
        except TopicAuthorizationError as error:
            denied = ErrorCode.NONE if shows else CONFIG_GUARD.error
            results.append(_without_config(topic.name, error.code, str(error), denied))
        except MillraceError as error:
            results.append(_without_config(topic.name, error.code, str(error)))
    fields: CreateTopicsResponseFields = {"throttle_time": 0, "topics": results}
    count_errors(services, ApiKey.CREATE_TOPICS, error_codes(fields))
    return mutations.respond([await asyncio.to_thread(CREATE_TOPICS.encode_response, request.version, fields)])


async def _create_topic(
    services: Services, asked: CreatableTopic, message: CreateTopicsRequest, mutations: Mutations
) -> TopicInfo:
    assignments = {one.partition_index: tuple(one.broker_ids) for one in asked.assignments}
    if assignments and (asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT):
        raise InvalidRequestError(
            f"topic {asked.name} has manual assignments and a number of partitions or replicas: both cannot be used at "
            "the same time"
        )
    nulls = [one.name for one in asked.configs if one.value is None]
    if nulls:
        raise InvalidConfigError(f"topic {asked.name}: null value not supported for {', '.join(nulls)}")
    return await services.topics.create(
        asked.name,
        partitions=None if asked.num_partitions == DEFAULT else asked.num_partitions,
        replication_factor=None if asked.replication_factor == DEFAULT else asked.replication_factor,
        assignments=assignments or None,
        config={one.name: one.value for one in asked.configs if one.value is not None},
        validate_only=message.validate_only,
        within=message.timeout,
        charge=mutations.charge,
    )


def _without_config(
    name: str, code: ErrorCode, message: str | None, config_code: ErrorCode = ErrorCode.NONE
) -> CreatableTopicResultFields:
    """Returns CreateTopics' result for a topic that is not created, or whose configuration the client may not see."""
    return {
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "error_code": code,
        "error_message": message,
        "topic_config_error_code": config_code,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }


def _created(services: Services, topic: TopicInfo, *, validate_only: bool) -> CreatableTopicResultFields:
    return {
        "name": topic.name,
        "topic_id": NO_TOPIC_ID if validate_only else topic.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {
                "name": entry.key.name,
                "value": entry.value,
                "read_only": entry.is_read_only,
                "config_source": entry.source,
                "is_sensitive": entry.key.is_secret,
            }
            for entry in services.configs.topic_entries(topic.config)
        ],
    }


def delete_topics(services: Services, request: Request) -> Reply:
    """Handles DeleteTopics: deletes each topic, given by its name or from v6 on by its id."""
    message = DELETE_TOPICS.decode_request(request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        asked: list[_Asked] = [(topic.name, topic.topic_id) for topic in each(message.topics)]
    else:
        asked = [(name, None) for name in message.topic_names]
    mutations = Mutations(services, request, FIRST_STRICT_DELETION)
    return later(_delete_each(services, request.without_body(), asked, message.timeout, mutations))


async def _delete_each(
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
            DELETE_GUARD.check(services, session, found)
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


def create_partitions(services: Services, request: Request) -> Reply:
    """Handles CreatePartitions: adds partitions to each topic; with `validate_only` only checks whether it could."""
    message = CREATE_PARTITIONS.decode_request(request.version, request.body)
    mutations = Mutations(services, request, FIRST_STRICT_GROWTH)
    return later(_grow_each(services, request.without_body(), message, mutations))


async def _grow_each(
    services: Services, request: Request, message: CreatePartitionsRequest, mutations: Mutations
) -> Parts | Throttled:
    times = Counter(topic.name for topic in message.topics)
    asked = {topic.name: topic for topic in message.topics}
    topics = services.metadata.image.topics
    known = [topic for topic in asked.values() if topic.name in topics]
    new_partitions = sum(max(topic.count - len(topics[topic.name].partitions), 0) for topic in known)
    results: list[CreatePartitionsTopicResultFields] = []
    for topic in asked.values():
        code, text = ErrorCode.NONE, None
        try:
            if times[topic.name] > 1:
                raise InvalidRequestError(f"duplicate topic name: {topic.name} is named {times[topic.name]} times")
            GROW_GUARD.check(services, request.session, topic.name)
            check_new_partitions(new_partitions)
            await _grow(services, topic, message, mutations)
        except MillraceError as error:
            code, text = error.code, str(error)
        results.append({"name": topic.name, "error_code": code, "error_message": text})
    fields: CreatePartitionsResponseFields = {"throttle_time": 0, "results": results}
    return mutations.respond(respond(services, CREATE_PARTITIONS, request.version, fields))


async def _grow(
    services: Services, topic: CreatePartitionsTopic, message: CreatePartitionsRequest, mutations: Mutations
) -> None:
    assignments = None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments]
    await services.topics.create_partitions(
        topic.name,
        topic.count,
        assignments,
        validate_only=message.validate_only,
        within=message.timeout,
        charge=mutations.charge,
    )


APIS = (
    Api(
        ApiKey.CREATE_TOPICS,
        VersionRange(0, 7),
        create_topics,
        refuses="more than 10,000 partitions in one request (POLICY_VIOLATION)",
        guards=(CREATE_GUARD, CREATE_TOPIC_GUARD, CONFIG_GUARD),
    ),
    Api(ApiKey.DELETE_TOPICS, VersionRange(0, 6), delete_topics, guards=(DELETE_GUARD, DESCRIBE_GUARD)),
    Api(
        ApiKey.CREATE_PARTITIONS,
        VersionRange(0, 3),
        create_partitions,
        refuses="more than 10,000 new partitions in one request (POLICY_VIOLATION)",
        guards=(GROW_GUARD,),
    ),
)
