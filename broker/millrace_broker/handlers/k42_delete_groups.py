"""DeleteGroups, versions 0 to 2: v2 flexible (KIP-229)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_GROUPS
from millrace_broker.groups.overview import delete_group
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.delete_groups import DeletableGroupResultFields, DeleteGroupsResponseFields

GUARD = Guard(ApiKey.DELETE_GROUPS, AclOperation.DELETE, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Deletes groups that have no members; one that is named twice is answered once."""
    message = DELETE_GROUPS.decode_request(request.version, request.body)
    return later(_delete(services, request.without_body(), dict.fromkeys(message.groups_names)))


async def _delete(services: Services, request: Request, group_ids: Iterable[str]) -> Parts:
    results: list[DeletableGroupResultFields] = [
        {"group_id": one, "error_code": await _delete_one(services, request, one)} for one in each(group_ids)
    ]
    fields: DeleteGroupsResponseFields = {"throttle_time": 0, "results": results}
    return respond(services, DELETE_GROUPS, request.version, fields)


async def _delete_one(services: Services, request: Request, group_id: str) -> ErrorCode:
    if not GUARD.permits(services, request.session, group_id):
        return GUARD.error
    try:
        return await delete_group(services.groups, group_id)
    except GroupError as error:
        return error.code


API = Api(ApiKey.DELETE_GROUPS, VersionRange(0, 2), handle, guards=(GUARD,))
