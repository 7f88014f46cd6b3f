"""DescribeClientQuotas, versions 0 and 1 (KIP-546); v1 flexible. No client has a quota; the filter is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidRequestError, MillraceError, UnsupportedVersionError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_CLIENT_QUOTAS
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasResponseFields

USER, CLIENT_ID, ADDRESS = ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, ANY = range(3)


def handle(services: Services, request: Request) -> Reply:
    """Returns an empty list, or the error of the filter."""
    message = DESCRIBE_CLIENT_QUOTAS.decode_request(request.version, request.body)
    fields: DescribeClientQuotasResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "entries": (),
    }
    try:
        _check(message.components)
    except MillraceError as error:
        fields |= {"error_code": error.code, "error_message": str(error), "entries": None}
    return answer(services, DESCRIBE_CLIENT_QUOTAS, request.version, fields)


def _check(components: Sequence[ComponentData]) -> None:
    types = Counter(one.entity_type for one in components)
    for name, count in types.items():
        if not name:
            raise InvalidRequestError("a component of the filter has no entity type")
        if count > 1:
            raise InvalidRequestError(f"entity type {name!r} is in the filter {count} times")
        if name not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"entity type {name!r} is not known")
    if ADDRESS in types and len(types) > 1:
        raise InvalidRequestError(f"entity type {ADDRESS!r} can't be combined with others")
    for one in components:
        if one.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidRequestError(f"match type {one.match_type} of {one.entity_type} is not known")


API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, VersionRange(0, 1), handle)
