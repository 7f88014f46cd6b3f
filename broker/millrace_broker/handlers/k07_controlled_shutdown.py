"""ControlledShutdown, versions 0 to 3: a broker that is about to stop asks the controller to move its leaders.

v1  a client id in the header (as all APIs)      v2  the broker's epoch      v3  flexible

The response has the partitions that the broker still leads, though they have other replicas: none of those is in sync.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import CONTROLLED_SHUTDOWN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponseFields

GUARD = Guard(ApiKey.CONTROLLED_SHUTDOWN, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns what the broker still leads."""
    message = CONTROLLED_SHUTDOWN.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, GUARD.error)
    return later(_shut_down(services, request.version, message))


async def _shut_down(services: Services, version: int, message: ControlledShutdownRequest) -> Parts:
    left = await asked(services, lambda controller: controller.shut_down(message.broker_id, message.broker_epoch))
    return _respond(services, version, left)


def _respond(services: Services, version: int, left: Collection[TopicPartition] | ErrorCode) -> Parts:
    fields: ControlledShutdownResponseFields = {
        "error_code": left if isinstance(left, ErrorCode) else ErrorCode.NONE,
        "remaining_partitions": []
        if isinstance(left, ErrorCode)
        else [{"topic_name": one.topic, "partition_index": one.partition} for one in left],
    }
    return respond(services, CONTROLLED_SHUTDOWN, version, fields)


API = Api(
    ApiKey.CONTROLLED_SHUTDOWN,
    VersionRange(0, 3),
    handle,
    refuses="all where the broker is not the controller (41)",
    guards=(GUARD,),
)
