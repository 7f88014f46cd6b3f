"""CreatePartitions, versions 0 to 3 (KIP-195); v2 flexible. A topic grows to `count` partitions.

From v3 on topics are refused while the client's quota of changes is exceeded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CREATE_PARTITIONS
from millrace_broker.cluster.topics import check_new_partitions
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, Throttled
from millrace_broker.handlers.mutations import Mutations
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponseFields,
        CreatePartitionsTopic,
        CreatePartitionsTopicResultFields,
    )

FIRST_STRICT_VERSION = 3
GUARD = Guard(ApiKey.CREATE_PARTITIONS, AclOperation.ALTER, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Extends each topic, or only checks whether it could be extended."""
    message = CREATE_PARTITIONS.decode_request(request.version, request.body)
    mutations = Mutations(services, request, FIRST_STRICT_VERSION)
    return later(_respond(services, request.without_body(), message, mutations))


async def _respond(
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
            GUARD.check(services, request.session, topic.name)
            check_new_partitions(new_partitions)
            await _create(services, topic, message, mutations)
        except MillraceError as error:
            code, text = error.code, str(error)
        results.append({"name": topic.name, "error_code": code, "error_message": text})
    fields: CreatePartitionsResponseFields = {"throttle_time": 0, "results": results}
    return mutations.respond(respond(services, CREATE_PARTITIONS, request.version, fields))


async def _create(
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


API = Api(
    ApiKey.CREATE_PARTITIONS,
    VersionRange(0, 3),
    handle,
    refuses="more than 10,000 new partitions in one request (POLICY_VIOLATION)",
    guards=(GUARD,),
)
