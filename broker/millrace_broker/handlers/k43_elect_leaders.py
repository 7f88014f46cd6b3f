"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460).

    v0  preferred leaders only      v1  election type, an error code for the whole response      v2  flexible

In a cluster, the controller elects. Standalone, a partition's only replica is its preferred leader and the only
eligible one: while its broker lives, no election is needed, and otherwise no leader can be elected. Where all
partitions were asked for, those that need no election are left out of the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ELECT_LEADERS
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked, said
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponseFields,
        ReplicaElectionResultFields,
    )

PREFERRED, UNCLEAN = 0, 1

GUARD = Guard(ApiKey.ELECT_LEADERS, AclOperation.ALTER, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the outcome of the election of each partition."""
    message = ELECT_LEADERS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, GUARD.error, _all_with(message, GUARD.error))
    if services.controller is not None and message.election_type in (PREFERRED, UNCLEAN):
        return later(_elected(services, request.version, message))
    kind, image = message.election_type, services.metadata.image
    if message.topic_partitions is None:
        everything = [(name, range(len(topic.partitions))) for name, topic in image.topics.items()]
        results = [_results(image, kind, name, indexes, leave_out_unneeded=True) for name, indexes in everything]
    else:
        results = [_results(image, kind, one.topic, one.partitions) for one in each(message.topic_partitions)]
    return _respond(
        services, request.version, ErrorCode.NONE, [one for one in each(results) if one["partition_result"]]
    )


def _respond(
    services: Services, version: int, code: ErrorCode, results: Sequence[ReplicaElectionResultFields]
) -> Parts:
    fields: ElectLeadersResponseFields = {
        "throttle_time": 0,
        "error_code": code,
        "replica_election_results": results,
    }
    return respond(services, ELECT_LEADERS, version, fields)


def _all_with(message: ElectLeadersRequest, code: ErrorCode) -> list[ReplicaElectionResultFields]:
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
    """Has the controller elect the leaders."""
    keys = None
    if message.topic_partitions is not None:
        named = each(message.topic_partitions)
        keys = [TopicPartition(one.topic, index) for one in named for index in each(one.partitions)]
    is_unclean = message.election_type == UNCLEAN
    outcomes = await asked(services, lambda controller: controller.elect(keys, is_unclean=is_unclean))
    failure = outcomes if isinstance(outcomes, ErrorCode) else ErrorCode.NONE
    told = dict.fromkeys(keys or (), outcomes) if isinstance(outcomes, ErrorCode) else outcomes
    if keys is None:
        told = {key: code for key, code in told.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
    results: list[ReplicaElectionResultFields] = [
        {
            "topic": topic,
            "partition_result": [
                {"partition_id": key.partition, "error_code": code, "error_message": said(code)}
                for key, code in each(found)
            ],
        }
        for topic, found in groupby(sorted(told.items()), lambda item: item[0].topic)
    ]
    return _respond(services, version, failure, results)


def _results(
    image: MetadataImage, kind: int, topic: str, indexes: Iterable[int], *, leave_out_unneeded: bool = False
) -> ReplicaElectionResultFields:
    outcomes = [(index, *_outcome(image, kind, topic, index)) for index in each(indexes)]
    return {
        "topic": topic,
        "partition_result": [
            {"partition_id": index, "error_code": code, "error_message": message}
            for index, code, message in each(outcomes)
            if not (leave_out_unneeded and code is ErrorCode.ELECTION_NOT_NEEDED)
        ],
    }


def _outcome(image: MetadataImage, kind: int, name: str, index: int) -> tuple[ErrorCode, str]:
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


API = Api(ApiKey.ELECT_LEADERS, VersionRange(0, 2), handle, guards=(GUARD,))
