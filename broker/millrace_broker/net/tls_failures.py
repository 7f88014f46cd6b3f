"""Says in words why a handshake of TLS failed, for the log: OpenSSL's reasons name neither the side nor the remedy."""

from __future__ import annotations

import ssl

REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required asks for one",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that the listener does (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "it has no cipher suite that the listener has (ssl.cipher.suites)",
}
ALERT = "ALERT_"


def failure(error: ssl.SSLError) -> str:
    """Returns the reason as a sentence about the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = error.reason or str(error)
    if ALERT in reason:
        said = reason.partition(ALERT)[2].replace("_", " ").lower()
        return f"it has ended the handshake, most likely as it does not trust the broker's certificate: {said}"
    return REASONS.get(reason, f"the handshake failed: {reason.replace('_', ' ').lower()}")
