"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: leaders and replicas, by the controller.

    ElectLeaders                 v0 to v2   KIP-183, KIP-460; v0  preferred leaders only    v1  election type, an error
                                            code for the whole response    v2  flexible
    AlterPartitionReassignments  v0, v1     KIP-455; v1  may forbid a change of the replication factor
    ListPartitionReassignments   v0         KIP-455

In a cluster, the controller elects and reassigns. Where any replica may lead (an unclean election), the brokers are
asked first where their logs end. Standalone, a partition's only replica is its preferred leader and the only eligible
one: while its broker lives, no election is needed, and otherwise no leader can be elected. Where all partitions were
asked for, those that need no election are left out of the response. A standalone broker keeps each
partition's only replica: a reassignment to this broker is done at once, any other is refused, and there is never one to
cancel or to list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS, LIST_PARTITION_REASSIGNMENTS
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.controller.cluster_state import Assignment
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_requests import ask_controller, asked, said
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponseFields,
        ReassignablePartition,
        ReassignablePartitionResponseFields,
        ReassignableTopicResponseFields,
    )
    from millrace.wire.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponseFields,
        ReplicaElectionResultFields,
    )
    from millrace.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponseFields,
        OngoingTopicReassignmentFields,
    )

PREFERRED, UNCLEAN = 0, 1
ELECT_GUARD = Guard(ApiKey.ELECT_LEADERS, AclOperation.ALTER, ResourceType.CLUSTER)
ALTER_GUARD = Guard(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AclOperation.ALTER, ResourceType.CLUSTER)
LIST_GUARD = Guard(ApiKey.LIST_PARTITION_REASSIGNMENTS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def elect_leaders(services: Services, request: Request) -> Reply:
    """Handles ElectLeaders: has the controller elect leaders; responds with the outcome for each partition."""
    message = ELECT_LEADERS.decode_request(request.version, request.body)
    if not ELECT_GUARD.permits(services, request.session):
        return _respond_elected(services, request.version, ELECT_GUARD.error, _none_elected(message, ELECT_GUARD.error))
    if services.controller is not None and message.election_type in (PREFERRED, UNCLEAN):
        return later(_elected(services, request.version, message))
    kind, image = message.election_type, services.metadata.image
    if message.topic_partitions is None:
        everything = [(name, range(len(topic.partitions))) for name, topic in image.topics.items()]
        results = [_results(image, kind, name, indexes, leave_out_unneeded=True) for name, indexes in everything]
    else:
        results = [_results(image, kind, one.topic, one.partitions) for one in each(message.topic_partitions)]
    return _respond_elected(
        services, request.version, ErrorCode.NONE, [one for one in each(results) if one["partition_result"]]
    )


def _respond_elected(
    services: Services, version: int, code: ErrorCode, results: Sequence[ReplicaElectionResultFields]
) -> Parts:
    fields: ElectLeadersResponseFields = {
        "throttle_time": 0,
        "error_code": code,
        "replica_election_results": results,
    }
    return respond(services, ELECT_LEADERS, version, fields)


def _none_elected(message: ElectLeadersRequest, code: ErrorCode) -> list[ReplicaElectionResultFields]:
    return [
        {
            "topic": one.topic,
            "partition_result": [
                {"partition_id": index, "error_code": code, "error_message": said(code)}
                for index in each(one.partitions)
            ],
        }
        for one in each(message.topic_partitions or ())
    ]


async def _elected(services: Services, version: int, message: ElectLeadersRequest) -> Parts:
    """Has the controller elect the leaders that ElectLeaders names, and returns the response."""
    keys = None
    if message.topic_partitions is not None:
        named = each(message.topic_partitions)
        keys = [TopicPartition(one.topic, index) for one in named for index in each(one.partitions)]
    if message.election_type == UNCLEAN:
        outcomes = await _elected_longest(services, keys)
    else:
        outcomes = await asked(services, lambda controller: controller.elect(keys))
    failure = outcomes if isinstance(outcomes, ErrorCode) else ErrorCode.NONE
    told = dict.fromkeys(keys or (), outcomes) if isinstance(outcomes, ErrorCode) else outcomes
    if keys is None:
        told = {key: code for key, code in told.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
    return _respond_elected(services, version, failure, _told(told))


async def _elected_longest(
    services: Services, keys: Sequence[TopicPartition] | None
) -> dict[TopicPartition, ErrorCode] | ErrorCode:
    """Has the controller elect the replicas with the longest logs, as far as their brokers tell."""
    questions = await asked(services, lambda controller: controller.without_leaders(keys))
    if isinstance(questions, ErrorCode) or services.controller is None:
        return questions if isinstance(questions, ErrorCode) else ErrorCode.NOT_CONTROLLER
    ends = await asyncio.to_thread(services.controller.read_log_ends, questions)
    return await asked(services, lambda controller: controller.elect(keys, is_unclean=True, log_ends=ends))


def _told(outcomes: Mapping[TopicPartition, ErrorCode]) -> list[ReplicaElectionResultFields]:
    return [
        {
            "topic": topic,
            "partition_result": [
                {"partition_id": key.partition, "error_code": code, "error_message": said(code)}
                for key, code in each(found)
            ],
        }
        for topic, found in groupby(sorted(outcomes.items()), lambda item: item[0].topic)
    ]


def _results(
    image: MetadataImage, kind: int, topic: str, indexes: Iterable[int], *, leave_out_unneeded: bool = False
) -> ReplicaElectionResultFields:
    outcomes = [(index, *_election(image, kind, topic, index)) for index in each(indexes)]
    return {
        "topic": topic,
        "partition_result": [
            {"partition_id": index, "error_code": code, "error_message": message}
            for index, code, message in each(outcomes)
            if not (leave_out_unneeded and code is ErrorCode.ELECTION_NOT_NEEDED)
        ],
    }


def _election(image: MetadataImage, kind: int, name: str, index: int) -> tuple[ErrorCode, str]:
    partition = image.partition(name, index)
    if kind not in (PREFERRED, UNCLEAN):
        return ErrorCode.INVALID_REQUEST, f"election type {kind} is not known"
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{_missing(image, name, index)}. The partition does not exist."
    if partition.leader in image.brokers:
        return ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by broker {partition.leader}"
    message = f"no replica of {name}-{index} is on a live broker"
    if kind == PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message


def _missing(image: MetadataImage, name: str, index: int) -> str:
    return f"No such partition as {name}-{index}" if name in image.topics else f"No such topic as {name}"


def alter(services: Services, request: Request) -> Reply:
    """Handles AlterPartitionReassignments: begins or cancels them; responds with the error of each partition."""
    message = ALTER_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    if not ALTER_GUARD.permits(services, request.session):
        return _respond_altered(
            services, request.version, message, ALTER_GUARD.error, _none_altered(message, ALTER_GUARD.error)
        )
    if services.controller is not None:
        return later(_reassigned(services, request.version, message))
    image = services.metadata.image
    responses: list[ReassignableTopicResponseFields] = [
        {"name": topic.name, "partitions": [_result(image, topic.name, one) for one in each(topic.partitions)]}
        for topic in each(message.topics)
    ]
    return _respond_altered(services, request.version, message, ErrorCode.NONE, responses)


def _none_altered(
    message: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> list[ReassignableTopicResponseFields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": code, "error_message": said(code)}
                for one in each(topic.partitions)
            ],
        }
        for topic in each(message.topics)
    ]


async def _reassigned(services: Services, version: int, message: AlterPartitionReassignmentsRequest) -> Parts:
    """Has the controller begin or cancel the reassignments that the request names, and returns the response."""
    targets = {
        TopicPartition(topic.name, one.partition_index): None if one.replicas is None else tuple(one.replicas)
        for topic in each(message.topics)
        for one in each(topic.partitions)
    }
    keeps_factor = not message.allow_replication_factor_change
    outcomes = await asked(services, lambda controller: controller.reassign(targets, keeps_factor=keeps_factor))
    if isinstance(outcomes, ErrorCode):
        return _respond_altered(services, version, message, outcomes, [])
    responses: list[ReassignableTopicResponseFields] = [
        {
            "name": name,
            "partitions": [
                {"partition_index": key.partition, "error_code": code, "error_message": said(code)}
                for key, code in each(found)
            ],
        }
        for name, found in groupby(sorted(outcomes.items()), lambda item: item[0].topic)
    ]
    return _respond_altered(services, version, message, ErrorCode.NONE, responses)


def _respond_altered(
    services: Services,
    version: int,
    message: AlterPartitionReassignmentsRequest,
    code: ErrorCode,
    responses: Sequence[ReassignableTopicResponseFields],
) -> Parts:
    fields: AlterPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "allow_replication_factor_change": message.allow_replication_factor_change,
        "error_code": code,
        "error_message": said(code),
        "responses": responses,
    }
    return respond(services, ALTER_PARTITION_REASSIGNMENTS, version, fields)


def _result(image: MetadataImage, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponseFields:
    code, message = _outcome(image, topic, wanted.partition_index, wanted.replicas)
    return {"partition_index": wanted.partition_index, "error_code": code, "error_message": message}


def _outcome(
    image: MetadataImage, name: str, index: int, replicas: Sequence[int] | None
) -> tuple[ErrorCode, str | None]:
    partition = image.partition(name, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being reassigned"
    current = partition.replicas
    if tuple(replicas) == current:
        return ErrorCode.NONE, None
    unknown = sorted(set(replicas) - set(image.brokers))
    reason = f"unknown are {unknown}" if unknown else f"it stays on {list(current)}: replicas are not moved yet"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index} to {list(replicas)}: {reason}"


def list_all(services: Services, request: Request) -> Reply:
    """Responds to ListPartitionReassignments with those under way, of the request's partitions or of all."""
    message = LIST_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    listed = partial(_listed, services, request.version, message)
    if services.controller is None and LIST_GUARD.permits(services, request.session):
        return listed({})
    return ask_controller(services, request, LIST_GUARD, lambda controller: controller.reassignments(), listed)


def _listed(
    services: Services,
    version: int,
    message: ListPartitionReassignmentsRequest,
    found: Mapping[TopicPartition, Assignment] | ErrorCode,
) -> Parts:
    code, found = (found, {}) if isinstance(found, ErrorCode) else (ErrorCode.NONE, found)
    if message.topics is not None:
        wanted = {TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes}
        found = {key: assignment for key, assignment in found.items() if key in wanted}
    topics: list[OngoingTopicReassignmentFields] = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": key.partition,
                    "replicas": assignment.replicas,
                    "adding_replicas": assignment.adding,
                    "removing_replicas": assignment.removing,
                }
                for key, assignment in some
            ],
        }
        for name, some in groupby(sorted(found.items(), key=lambda item: item[0]), lambda item: item[0].topic)
    ]
    fields: ListPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "error_code": code,
        "error_message": said(code) or "",
        "topics": topics,
    }
    return respond(services, LIST_PARTITION_REASSIGNMENTS, version, fields)


APIS = (
    Api(ApiKey.ELECT_LEADERS, VersionRange(0, 2), elect_leaders, guards=(ELECT_GUARD,)),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VersionRange(0, 1), alter, guards=(ALTER_GUARD,)),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VersionRange(0, 0), list_all, guards=(LIST_GUARD,)),
)
