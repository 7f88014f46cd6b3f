"""DescribeCluster, versions 0 to 2 (KIP-700).

Brokers without the listener by which the request came are left out.

v1  the type of endpoint that is asked (KIP-919): a broker, never a controller      v2  fenced brokers: there are none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_CLUSTER
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.cluster.metadata_image import reachable
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.authorized_operations import NO_OPERATIONS, authorized_operations
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.describe_cluster import (
        DescribeClusterBrokerFields,
        DescribeClusterRequest,
        DescribeClusterResponseFields,
    )

BROKERS, CONTROLLERS = 1, 2

GUARD = Guard(ApiKey.DESCRIBE_CLUSTER, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Describes the cluster: its id, its controller and its live brokers."""
    message = DESCRIBE_CLUSTER.decode_request(request.version, request.body)
    endpoint_type = message.endpoint_type
    if endpoint_type == BROKERS:
        fields = _described(services, request, message)
    elif endpoint_type == CONTROLLERS:
        fields = _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "controllers were asked for, and this is a broker")
    else:
        fields = _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} is not known")
    return respond(services, DESCRIBE_CLUSTER, request.version, fields)


def _described(services: Services, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponseFields:
    image = services.metadata.image
    brokers: list[DescribeClusterBrokerFields] = [
        {"broker_id": one, "host": at.host, "port": at.port, "rack": image.brokers[one].rack, "is_fenced": False}
        for one, at in reachable(image, request.session.listener).items()
    ]
    return {
        **_refused(ErrorCode.NONE, None),
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": brokers,
        "cluster_authorized_operations": (
            _operations(services, request) if message.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    }


def _operations(services: Services, request: Request) -> int:
    if GUARD.permits(services, request.session):
        return authorized_operations(services, request.session, ResourceType.CLUSTER)
    return NO_OPERATIONS


def _refused(code: ErrorCode, message: str | None) -> DescribeClusterResponseFields:
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message,
        "endpoint_type": BROKERS,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": (),
        "cluster_authorized_operations": OPERATIONS_NOT_ASKED,
    }


API = Api(ApiKey.DESCRIBE_CLUSTER, VersionRange(0, 2), handle, guards=(GUARD,))
