"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511).

    v0  error and ranges      v1  throttle time      v3  flexible; the client says what software it is; features
    v4  supported features from version 0 on (KIP-1022)

A version that is not served is answered in v0's form with UNSUPPORTED_VERSION and the range of this API, so that any
client can ask again in a lower version. An unknown version of any other API closes the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import API_VERSIONS
from millrace_broker.cluster.metadata_image import GROUP_VERSION, SUPPORTED, OfferedFeatures
from millrace_broker.handlers.api import UNGUARDED, Api, Reply, Request, Services
from millrace_broker.handlers.responses import count_errors

if TYPE_CHECKING:
    from millrace.wire.messages.api_versions import ApiVersionsResponseFields

VERSIONS = VersionRange(0, 4)
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
Ranges = tuple[tuple[int, int, int], ...]  # an API's key, its first and its last version
Levels = tuple[tuple[str, int], ...]
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class _Features(NamedTuple):
    """Levels of features: those finalized for the cluster, the epoch of these, and those that this broker supports."""

    offered: Levels
    epoch: int
    own: Levels


def handle(services: Services, request: Request) -> Reply:
    """Handles ApiVersions: responds with the APIs that are served, their versions, and the cluster's features."""
    if request.version not in VERSIONS:
        return _respond(services, 0, ErrorCode.UNSUPPORTED_VERSION, [API])
    message = API_VERSIONS.decode_request(request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_SOFTWARE:
        names = (message.client_software_name, message.client_software_version)
        if not all(SOFTWARE.fullmatch(name) for name in names):
            return _respond(services, request.version, ErrorCode.INVALID_REQUEST, ())
    return _respond(
        services, request.version, ErrorCode.NONE, services.apis.values(), _features(services, request.version)
    )


def _respond(
    services: Services,
    version: int,
    code: ErrorCode,
    apis: Iterable[Api],
    features: OfferedFeatures | None = None,
) -> Reply:
    count_errors(services, ApiKey.API_VERSIONS, (code,))
    served = tuple((api.key, *api.versions) for api in apis if api.is_told)
    told = None
    if features is not None:
        told = _Features(tuple(features.levels.items()), features.epoch, tuple(_own(services).items()))
    return [_encoded(version, code, served, told)]


@lru_cache(maxsize=16)
def _encoded(version: int, code: ErrorCode, served: Ranges, features: _Features | None) -> bytes:
    """Returns the encoded response; it is cached, as every client asks on every new connection."""
    fields: ApiVersionsResponseFields = {
        "error_code": code,
        "api_keys": [{"api_key": key, "min_version": first, "max_version": last} for key, first, last in served],
        "throttle_time": 0,
    }
    if features is not None:
        fields |= {
            "finalized_features_epoch": features.epoch,
            "finalized_features": [
                {"name": name, "min_version_level": level, "max_version_level": level}
                for name, level in features.offered
            ],
        }
        if version >= FIRST_VERSION_WITH_FEATURES_FROM_0:
            fields["supported_features"] = [
                {"name": name, "min_version": 0, "max_version": level} for name, level in features.own
            ]
    return API_VERSIONS.encode_response(version, fields)


def _features(services: Services, version: int) -> OfferedFeatures | None:
    """Returns the cluster's finalized features, less those this broker lacks; None in versions without features."""
    if version < FIRST_VERSION_WITH_SOFTWARE:
        return None
    offered, own = services.metadata.image.features, _own(services)
    return OfferedFeatures({name: level for name, level in offered.levels.items() if name in own}, offered.epoch)


def _own(services: Services) -> Mapping[str, int]:
    """Returns the level of each feature that this broker supports, less `group.version` if it is switched off."""
    is_group_version_served = services.consumer_groups.config.is_served
    return {name: level for name, level in SUPPORTED.items() if name != GROUP_VERSION or is_group_version_served}


API = Api(
    ApiKey.API_VERSIONS,
    VERSIONS,
    handle,
    refuses="other versions (UNSUPPORTED_VERSION in v0's form, with the versions of this API alone); "
    "names of client software outside of [a-zA-Z0-9.-] (INVALID_REQUEST)",
    guards=UNGUARDED,
)
