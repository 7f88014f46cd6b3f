"""ConsumerGroupDescribe, versions 0 and 1: v1 tells which protocol a member uses (KIP-1099).

A group is described only to a client that may describe the topics which its members read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.error_codes import error_sentence
from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import CONSUMER_GROUP_DESCRIBE
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroup
from millrace_broker.groups.consumer.member import NOTHING, Assignment, Member, by_topic
from millrace_broker.groups.consumer.state import GroupState
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.authorized_operations import authorized_operations
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.consumer_group_describe import (
        AssignmentFields,
        ConsumerGroupDescribeResponseFields,
        DescribedGroupFields,
        MemberFields,
    )

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

GUARD = Guard(ApiKey.CONSUMER_GROUP_DESCRIBE, AclOperation.DESCRIBE, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.CONSUMER_GROUP_DESCRIBE, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Describes each group."""
    message = CONSUMER_GROUP_DESCRIBE.decode_request(request.version, request.body)
    groups = [
        _group(services, request, group_id, with_operations=message.include_authorized_operations)
        for group_id in dict.fromkeys(message.group_ids)
    ]
    fields: ConsumerGroupDescribeResponseFields = {"throttle_time": 0, "groups": groups}
    return respond(services, CONSUMER_GROUP_DESCRIBE, request.version, fields)


def _group(services: Services, request: Request, group_id: str, *, with_operations: bool) -> DescribedGroupFields:
    if services.consumer_groups.config.is_served and not GUARD.permits(services, request.session, group_id):
        return _refused(group_id, GUARD.error, error_sentence(GUARD.error))
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID, None)
    try:
        group = services.consumer_groups.find(services.groups, group_id)
    except GroupError as error:
        return _refused(group_id, error.code, str(error))
    image = services.metadata.image
    if not all(TOPIC_GUARD.permits(services, request.session, name) for name in _topics_read(group.state, image)):
        return _refused(group_id, TOPIC_GUARD.error, "the group reads topics that the client may not describe")
    default = services.consumer_groups.config.default_assignor
    operations = (
        authorized_operations(services, request.session, ResourceType.GROUP, group_id)
        if with_operations
        else OPERATIONS_NOT_ASKED
    )
    return {**_described(group_id, group, default, image), "authorized_operations": operations}


def _topics_read(state: GroupState, image: MetadataImage) -> list[str]:
    """Returns the topics of which members have, or are to have, partitions: by name or by pattern."""
    assignments = [*state.targets.values(), *(member.current.assigned for member in state.members.values())]
    ids = {one.topic_id for assignment in assignments for one in assignment}
    return sorted(topic.name for topic in image.topics.values() if topic.topic_id in ids)


def _refused(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroupFields:
    return {
        "group_id": group_id,
        "error_code": code,
        "error_message": message,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def _described(
    group_id: str, group: ConsumerGroup, default_assignor: str, image: MetadataImage
) -> DescribedGroupFields:
    state = group.state
    names = {topic.topic_id: topic.name for topic in image.topics.values()}
    return {
        "group_id": group_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_state": state.state_name,
        "group_epoch": state.epoch,
        "assignment_epoch": state.target_epoch,
        "assignor_name": state.preferred_assignor(default_assignor),
        "members": [
            _member(member, state.targets.get(member.member_id, NOTHING), names) for member in state.members.values()
        ],
    }


def _member(member: Member, target: Assignment, names: Mapping[UUID, str]) -> MemberFields:
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


def _assignment(assignment: Assignment, names: Mapping[UUID, str]) -> AssignmentFields:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if topic_id in names
        ]
    }


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, VersionRange(0, 1), handle, guards=(GUARD, TOPIC_GUARD))
