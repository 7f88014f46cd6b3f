"""Where the throttle time lies in the responses: four bytes that are overwritten, so that nothing is encoded again.

    nearly all         first of all
    OffsetDelete       behind the error code
    ApiVersions        behind the list of APIs; a refused version is answered as by version 0, without it
    delegation tokens  last, before the tagged fields
    Produce            likewise; its tagged fields are parts of their own if there are any

The first versions of the older APIs have none.
"""

from __future__ import annotations

from millrace.error_codes import ErrorCode
from millrace.wire.api import ApiKey, is_flexible
from millrace.wire.encoder import INT32, Part, Parts, contents
from millrace.wire.schema import read_varint

BYTES = INT32.size
ERROR_CODE_BYTES = 2
NO_TAGGED_FIELDS = b"\x00"
FIRST_FLEXIBLE_API_VERSIONS = 3
API_BYTES, FLEXIBLE_API_BYTES = 6, 7

# The first version that has it, where that is not version 0.
FIRST_VERSIONS: dict[int, int] = {
    ApiKey.PRODUCE: 1,
    ApiKey.FETCH: 1,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 3,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.API_VERSIONS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
}
LAST = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    )
)
WITHOUT = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)


def with_throttle_time(api_key: int, version: int, parts: Parts, throttle_ms: int) -> Parts:
    """Returns a response's parts with this throttle time in ms; unchanged for a version without that field."""
    if api_key in WITHOUT or version < FIRST_VERSIONS.get(api_key, 0) or _is_refused(api_key, parts):
        return parts
    index, position = _place(api_key, version, parts)
    return [*parts[:index], _overwritten(parts[index], position, throttle_ms), *parts[index + 1 :]]


def _place(api_key: int, version: int, parts: Parts) -> tuple[int, int]:
    """Returns the index of the part of a response that has the throttle time, and the field's position in that part."""
    if api_key in LAST:
        return _last(parts, is_tagged=is_flexible(api_key, version))
    if api_key == ApiKey.API_VERSIONS:
        return 0, _behind_the_apis(contents(parts[0]), version)
    return 0, ERROR_CODE_BYTES if api_key == ApiKey.OFFSET_DELETE else 0


def _last(parts: Parts, *, is_tagged: bool) -> tuple[int, int]:
    last = len(parts) - 1
    if not is_tagged:
        return last, len(parts[last]) - BYTES
    if not last:
        return 0, len(parts[0]) - BYTES - len(NO_TAGGED_FIELDS)
    index = last - 1 if parts[last] == NO_TAGGED_FIELDS else last - 2
    return index, len(parts[index]) - BYTES


def _behind_the_apis(body: bytes | memoryview, version: int) -> int:
    if version < FIRST_FLEXIBLE_API_VERSIONS:
        (count,) = INT32.unpack_from(body, ERROR_CODE_BYTES)
        return int(ERROR_CODE_BYTES + INT32.size + count * API_BYTES)
    length, position = read_varint(memoryview(body), ERROR_CODE_BYTES)
    return position + (length - 1) * FLEXIBLE_API_BYTES


def _is_refused(api_key: int, parts: Parts) -> bool:
    code = contents(parts[0])[:ERROR_CODE_BYTES]
    return api_key == ApiKey.API_VERSIONS and int.from_bytes(code, "big") == ErrorCode.UNSUPPORTED_VERSION


def _overwritten(part: Part, position: int, throttle_ms: int) -> bytes:
    data = contents(part)
    return b"".join((data[:position], INT32.pack(throttle_ms), data[position + BYTES :]))
