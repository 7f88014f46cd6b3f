"""The headers of answers, for those of tests that answer in a broker's place."""

from __future__ import annotations

from millrace.wire.header import CORRELATION_ID, NO_TAGGED_FIELDS, has_tagged_response_header


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Returns the header of an answer."""
    header = CORRELATION_ID.pack(correlation_id)
    return header + NO_TAGGED_FIELDS if has_tagged_response_header(api_key, api_version) else header
