"""Request and response headers (Kafka protocol guide, "Messages").

request v0   apiKey i16, apiVersion i16, correlationId i32: for ControlledShutdown v0 alone
request v1   apiKey i16, apiVersion i16, correlationId i32, clientId nullable string (i16 length)
request v2   the same, then tagged fields: for flexible versions
response v0  correlationId i32
response v1  correlationId i32, tagged fields: for flexible versions, ApiVersions excepted
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from millrace.errors import MalformedRequestError
from millrace.kernel import native
from millrace.wire.api import FIRST_FLEXIBLE_VERSION, ApiKey
from millrace.wire.schema import read_varint

FIXED = struct.Struct(">hhih")
FIXED_BYTES = FIXED.size
NEVER_FLEXIBLE = 255
WITHOUT_CLIENT_ID = struct.Struct(">hhi")
CORRELATION_ID = struct.Struct(">i")
SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
SIZE_CORRELATION_ID_AND_NO_TAGS = struct.Struct(">iix")
NO_TAGGED_FIELDS = b"\x00"
CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)  # to compare with it takes half as long as with the member
MAX_TAGGED_FIELDS = 4096  # the protocol has none yet: they are passed over one by one


class RequestHeader(NamedTuple):
    """A parsed request header; the request's body begins at `body_position` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    size_bytes: int


FIRST_FLEXIBLE = bytes(
    FIRST_FLEXIBLE_VERSION.get(key, NEVER_FLEXIBLE) for key in range(max(FIRST_FLEXIBLE_VERSION) + 1)
)


def read_request_header(frame: memoryview) -> RequestHeader:
    """Returns a request's header, also of an unknown API; raises MalformedRequestError for an incomplete one."""
    fields = None if native is None else native.request_header(frame, FIRST_FLEXIBLE)
    # `tuple.__new__` does what `_make` does, at half the cost.
    return read_any_request_header(frame) if fields is None else tuple.__new__(RequestHeader, fields)


def read_any_request_header(frame: memoryview) -> RequestHeader:
    """Returns what `read_request_header` does, in Python, for headers that the record kernel does not parse."""
    try:
        api_key, api_version, correlation_id, client_id_length = FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedRequestError(f"a request of {len(frame)} bytes is too short for its header") from None
    if api_key == CONTROLLED_SHUTDOWN and not api_version:
        return RequestHeader(api_key, api_version, correlation_id, None, WITHOUT_CLIENT_ID.size, len(frame))
    size_bytes = len(frame)
    position = FIXED_BYTES + client_id_length if client_id_length > 0 else FIXED_BYTES
    if position > size_bytes or client_id_length < -1:
        raise MalformedRequestError(f"client id of {client_id_length} bytes runs over its request")
    try:
        client_id = None if client_id_length < 0 else str(frame[FIXED_BYTES:position], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"client id is not UTF-8: {error}") from None
    if api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, 1 << 16):
        has_none = position < size_bytes and not frame[position]
        position = position + 1 if has_none else _skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position, size_bytes)


def encode_request_header(api_key: ApiKey, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Returns the bytes of the header of a request that Millrace sends."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and not api_version:
        return WITHOUT_CLIENT_ID.pack(api_key, api_version, correlation_id)
    name = client_id.encode()
    tagged_fields = NO_TAGGED_FIELDS if api_version >= FIRST_FLEXIBLE_VERSION[api_key] else b""
    return FIXED.pack(api_key, api_version, correlation_id, len(name)) + name + tagged_fields


@cache
def start_of_responses(api_key: int, api_version: int) -> tuple[struct.Struct, int]:
    """Returns the struct of a response's size and correlation id, and how many header bytes that size counts."""
    if has_tagged_response_header(api_key, api_version):
        return SIZE_CORRELATION_ID_AND_NO_TAGS, CORRELATION_ID.size + len(NO_TAGGED_FIELDS)
    return SIZE_AND_CORRELATION_ID, CORRELATION_ID.size


def has_tagged_response_header(api_key: int, api_version: int) -> bool:
    """Returns whether a response has header v1, with tagged fields; ApiVersions responses never do (KIP-511)."""
    return api_key != ApiKey.API_VERSIONS and api_version >= FIRST_FLEXIBLE_VERSION[api_key]


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    try:
        count, position = read_varint(frame, position)
        if count > MAX_TAGGED_FIELDS:
            raise MalformedRequestError(f"a header of {count} tagged fields; the limit is {MAX_TAGGED_FIELDS}")
        for _ in range(count):
            _, position = read_varint(frame, position)
            size, position = read_varint(frame, position)
            position += size
            if position > len(frame):
                raise MalformedRequestError("a tagged field runs over its request")
    except (IndexError, ValueError):
        raise MalformedRequestError("tagged fields of the header are cut short") from None
    return position
