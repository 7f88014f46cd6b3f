"""ConsumerGroupDescribe, versions 0 and 1: v1 says which protocol a member uses (KIP-1099)."""

from __future__ import annotations

from typing import Any

from millrace.errors import ErrorCode, GroupError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace_broker.cluster.view import ClusterView
from millrace_broker.groups.consumer.consumer_group import ConsumerGroup
from millrace_broker.groups.consumer.member import NOTHING, Assignment, Member, by_topic
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.k15_describe_groups import ALL_OPERATIONS, OPERATIONS_NOT_ASKED_FOR

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOTHING_KNOWN: dict[str, Any] = {
    "group_state": "",
    "group_epoch": 0,
    "assignment_epoch": 0,
    "assignor_name": "",
    "members": (),
}


def handle(services: Services, request: Request) -> Reply:
    """Describe each group; without access control everybody may do everything."""
    message = decode(ApiKey.CONSUMER_GROUP_DESCRIBE, request.version, Direction.REQUEST, request.body)
    operations = ALL_OPERATIONS if message.include_authorized_operations else OPERATIONS_NOT_ASKED_FOR
    groups = [_group(services, group_id, operations) for group_id in dict.fromkeys(message.group_ids)]
    fields = {"throttle_time": 0, "groups": groups}
    return answer(services, ApiKey.CONSUMER_GROUP_DESCRIBE, request.version, fields)


def _group(services: Services, group_id: str, operations: int) -> dict[str, Any]:
    fields = {"group_id": group_id, "error_code": ErrorCode.NONE, "error_message": None}
    try:
        if not group_id:
            return fields | NOTHING_KNOWN | {"error_code": ErrorCode.INVALID_GROUP_ID}
        group = services.consumer_groups.find(services.groups, group_id)
    except GroupError as error:
        return fields | NOTHING_KNOWN | {"error_code": error.code, "error_message": str(error)}
    default = services.consumer_groups.config.default_assignor
    return fields | _description(group, default, services.metadata.view) | {"authorized_operations": operations}


def _description(group: ConsumerGroup, default_assignor: str, view: ClusterView) -> dict[str, Any]:
    state = group.state
    names = {topic.topic_id: topic.name for topic in view.topics.values()}
    return {
        "group_state": state.state_name,
        "group_epoch": state.epoch,
        "assignment_epoch": state.target_epoch,
        "assignor_name": state.preferred_assignor(default_assignor),
        "members": [
            _member(member, state.targets.get(member.member_id, NOTHING), names) for member in state.members.values()
        ],
    }


def _member(member: Member, target: Assignment, names: dict[Any, str]) -> dict[str, Any]:
    metadata = member.metadata
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": sorted(metadata.topic_names),
        "subscribed_topic_regex": metadata.topic_regex,
        "assignment": _assignment(member.current.assigned, names),
        "target_assignment": _assignment(target, names),
        "member_type": CONSUMER_MEMBER if metadata.classic is None else CLASSIC_MEMBER,
    }


def _assignment(assignment: Assignment, names: dict[Any, str]) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if topic_id in names
        ]
    }


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, VersionRange(0, 1), handle)
