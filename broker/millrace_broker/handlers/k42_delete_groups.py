"""DeleteGroups, versions 0 to 2: v2 flexible (KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_GROUPS
from millrace_broker.groups.overview import delete_group
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.delete_groups import DeletableGroupResultFields, DeleteGroupsResponseFields


def handle(services: Services, request: Request) -> Reply:
    """Deletes groups that have no members; one that is named twice is answered once."""
    message = DELETE_GROUPS.decode_request(request.version, request.body)
    return asyncio.ensure_future(_delete(services, request.version, dict.fromkeys(message.groups_names)))


async def _delete(services: Services, version: int, group_ids: Iterable[str]) -> Parts:
    results: list[DeletableGroupResultFields] = [
        {"group_id": one, "error_code": await _delete_one(services, one)} for one in group_ids
    ]
    fields: DeleteGroupsResponseFields = {"throttle_time": 0, "results": results}
    return answer(services, DELETE_GROUPS, version, fields)


async def _delete_one(services: Services, group_id: str) -> ErrorCode:
    try:
        return await delete_group(services.groups, group_id)
    except GroupError as error:
        return error.code


API = Api(ApiKey.DELETE_GROUPS, VersionRange(0, 2), handle)
