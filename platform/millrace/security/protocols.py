"""The security protocols of listeners, and Kafka's names of those properties of security that several modules read."""

from __future__ import annotations

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """How a connection is secured: with or without TLS, with or without SASL."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """Whether the protocol encrypts every byte by TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL before their first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


MECHANISM, JAAS = "sasl.mechanism", "sasl.jaas.config"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
