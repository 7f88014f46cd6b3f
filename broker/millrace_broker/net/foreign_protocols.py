"""Tells which protocol a peer speaks where it is not the listener's: a frequent mistake.

The first bytes show it. Without TLS they are taken for the size of a frame, which is then far too large.

    16 03             the handshake of TLS (RFC 8446, section 5.1)
    G E T space, …    a request of HTTP
"""

from __future__ import annotations

from millrace.errors import FrameSizeError, WireError
from millrace.wire.frame import SIZE

HANDSHAKE_RECORD = 22
HANDSHAKE = b"\x16\x03"
HTTP_REQUESTS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
NO_TLS = "it does not speak TLS; its security.protocol must be SSL or SASL_SSL here"
IS_HTTP = "it looks like HTTP, and here Kafka's protocol is spoken; the admin endpoint has another address"


def no_handshake(first: bytes | memoryview) -> str | None:
    """Returns what is wrong with the first bytes of a connection that is to be secured; None for a handshake of TLS."""
    if first[0] == HANDSHAKE_RECORD:
        return None
    return IS_HTTP if bytes(first[: SIZE.size]) in HTTP_REQUESTS else NO_TLS


def no_request(error: WireError, *, uses_tls: bool, uses_sasl: bool) -> str:
    """Returns what is wrong with bytes that are not a request, on a connection with these parts of security."""
    first = SIZE.pack(error.size_bytes) if isinstance(error, FrameSizeError) else b""
    if first in HTTP_REQUESTS:
        return IS_HTTP
    if first.startswith(HANDSHAKE) and not uses_tls:
        return f"it looks like TLS; its security.protocol must be {'SASL_' if uses_sasl else ''}PLAINTEXT here"
    return str(error)
