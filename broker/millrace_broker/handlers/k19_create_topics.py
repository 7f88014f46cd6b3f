"""CreateTopics, versions 0 to 7.

    v0  topic and error code         v1  error message, validate only      v2  throttle time
    v4  partitions and replication factor -1: the broker's default
    v5  flexible; the response describes the topic and its configuration
    v6  refuses topics while the client's quota of changes is exceeded     v7  topic id

Manual assignments are taken as given. Each topic succeeds or fails by itself; one that is named twice fails. The
response is encoded in a worker thread, as it may have every property of many topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidConfigError, InvalidRequestError, MillraceError, TopicAuthorizationError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_TOPICS
from millrace_broker.cluster.metadata_image import TopicInfo
from millrace_broker.cluster.topics import check_new_partitions
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, Throttled
from millrace_broker.handlers.mutations import Mutations
from millrace_broker.handlers.responses import count_errors, error_codes

if TYPE_CHECKING:
    from millrace.wire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResultFields,
        CreateTopicsRequest,
        CreateTopicsResponseFields,
    )

DEFAULT = -1
GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.CLUSTER, is_silent=True)
TOPIC_GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.TOPIC)
CONFIG_GUARD = Guard(ApiKey.CREATE_TOPICS, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, is_silent=True)
FIRST_STRICT_VERSION = 6


def handle(services: Services, request: Request) -> Reply:
    """Creates each topic."""
    message = CREATE_TOPICS.decode_request(request.version, request.body)
    mutations = Mutations(services, request, FIRST_STRICT_VERSION)
    return later(_create(services, request.without_body(), message, mutations))


async def _create(
    services: Services, request: Request, message: CreateTopicsRequest, mutations: Mutations
) -> Parts | Throttled:
    may_create_all = GUARD.permits(services, request.session)
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
                TOPIC_GUARD.check(services, request.session, topic.name)
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
    """Returns the result for a topic that is not created, or whose creator may not see its configuration."""
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


API = Api(
    ApiKey.CREATE_TOPICS,
    VersionRange(0, 7),
    handle,
    refuses="more than 10,000 partitions in one request (POLICY_VIOLATION)",
    guards=(GUARD, TOPIC_GUARD, CONFIG_GUARD),
)
