"""Says in words why a peer is not understood: it speaks another protocol, or its handshake of TLS failed.

Where a peer speaks another protocol than the listener's, a frequent mistake, the first bytes show it. Without TLS they
are taken for the size of a frame, which is then far too large.

    16 03             the handshake of TLS (RFC 8446, section 5.1)
    G E T space, …    a request of HTTP

OpenSSL's reasons for a failed handshake name neither the side nor the remedy.
"""

from __future__ import annotations

import ssl

from millrace.errors import FrameSizeError, WireError
from millrace.wire.frame import SIZE

HANDSHAKE_RECORD = 22
HANDSHAKE = b"\x16\x03"
HTTP_REQUESTS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
NO_TLS = "it does not speak TLS; its security.protocol must be SSL or SASL_SSL here"
IS_HTTP = "it looks like HTTP, and here Kafka's protocol is spoken; the admin endpoint has another address"
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required asks for one",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that the listener does (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "it has no cipher suite that the listener has (ssl.cipher.suites)",
}
ALERT = "ALERT_"


def no_handshake(first: bytes | memoryview) -> str | None:
    """Returns a sentence on the peer if the first bytes of its connection are no TLS handshake, else None."""
    if first[0] == HANDSHAKE_RECORD:
        return None
    return IS_HTTP if bytes(first[: SIZE.size]) in HTTP_REQUESTS else NO_TLS


def no_request(error: WireError, *, uses_tls: bool, uses_sasl: bool) -> str:
    """Returns a sentence on why bytes are not a request: the error's text, or that the peer speaks HTTP or TLS."""
    first = SIZE.pack(error.size_bytes) if isinstance(error, FrameSizeError) else b""
    if first in HTTP_REQUESTS:
        return IS_HTTP
    if first.startswith(HANDSHAKE) and not uses_tls:
        return f"it looks like TLS; its security.protocol must be {'SASL_' if uses_sasl else ''}PLAINTEXT here"
    return str(error)


def failure(error: ssl.SSLError) -> str:
    """Returns a sentence on why a TLS handshake failed, with the remedy where one is known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = error.reason or str(error)
    if ALERT in reason:
        said = reason.partition(ALERT)[2].replace("_", " ").lower()
        return f"it has ended the handshake, most likely as it does not trust the broker's certificate: {said}"
    return REASONS.get(reason, f"the handshake failed: {reason.replace('_', ' ').lower()}")
