"""Errors of TLS, as a client sees them, explained in messages that name the property to look at."""

from __future__ import annotations

import ssl

from millrace.errors import TlsError

EXPIRED, NOT_YET_VALID = 10, 9
NOT_TRUSTED = frozenset({2, 18, 19, 20, 21})
WRONG_HOST = frozenset({62, 64})
CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


def tls_error(error: OSError, peer: str) -> TlsError | None:
    """Returns the error of a handshake or of an alert; None for what belongs to the connection below TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(_of_certificate(error, peer))
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    reason = error.reason or ""
    if reason in NO_TLS:
        return TlsError(f"{peer} does not speak TLS there: is security.protocol right?")
    if "ALERT" in reason and any(word in reason for word in CERTIFICATE_ALERTS):
        return TlsError(
            f"{peer} does not take this client's certificate, or misses it ({_words(reason)}): "
            "ssl.keystore.location names the file with certificate and key"
        )
    return TlsError(f"TLS with {peer} fails: {_words(reason) or error}")


def _of_certificate(error: ssl.SSLCertVerificationError, peer: str) -> str:
    if error.verify_code in WRONG_HOST:
        return f"the certificate of {peer} is made for another host: {error.verify_message.rstrip('.')}"
    if error.verify_code == EXPIRED:
        return f"the certificate of {peer} has expired"
    if error.verify_code == NOT_YET_VALID:
        return f"the certificate of {peer} is not valid yet"
    if error.verify_code in NOT_TRUSTED:
        return f"the certificate of {peer} is signed by nobody whom ssl.truststore.location trusts"
    return f"the certificate of {peer} is not taken: {error.verify_message}"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
