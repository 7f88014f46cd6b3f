"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511).

    v0  error and ranges      v1  throttle time      v3  flexible; the client says what software it is

A version that is not served is answered in v0's form with UNSUPPORTED_VERSION and the range of this API, so that any
client can step down: the one request that is never refused by closing the connection. There are no features: the
fields of v3 that name them are at their defaults, and so left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.handlers.api import Api, Reply, Request, Services

VERSIONS = VersionRange(0, 4)
FIRST_VERSION_WITH_SOFTWARE = 3
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, request: Request) -> Reply:
    """What is served."""
    if request.version not in VERSIONS:
        return _answer(0, ErrorCode.UNSUPPORTED_VERSION, [API])
    message = decode(ApiKey.API_VERSIONS, request.version, Direction.REQUEST, request.body)
    if request.version >= FIRST_VERSION_WITH_SOFTWARE:
        names = (message.client_software_name, message.client_software_version)
        if not all(SOFTWARE.fullmatch(name) for name in names):
            return _answer(request.version, ErrorCode.INVALID_REQUEST, ())
    return _answer(request.version, ErrorCode.NONE, services.apis.values())


def _answer(version: int, code: ErrorCode, apis: Iterable[Api]) -> Reply:
    served = [
        {"api_key": api.key, "min_version": api.versions.minimum, "max_version": api.versions.maximum} for api in apis
    ]
    fields = {"error_code": code, "api_keys": served, "throttle_time": 0}
    return [encode(ApiKey.API_VERSIONS, version, Direction.RESPONSE, fields)]


API = Api(
    ApiKey.API_VERSIONS,
    VERSIONS,
    handle,
    refuses="other versions (UNSUPPORTED_VERSION in v0's form, with the versions of this API alone); "
    "names of client software outside of [a-zA-Z0-9.-] (INVALID_REQUEST)",
)
