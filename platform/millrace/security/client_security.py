"""How a client's connections are secured: an immutable value, made of Kafka's client properties.

    security = ClientSecurity.from_properties({"security.protocol": "SSL", "ssl.truststore.location": "ca.pem"})
    socket   = security.secure(connected, "kafka-1")          the TLS handshake, where the protocol asks for it
    security.new_mechanism()                                  the client's side of one authentication by SASL

Certificates and credentials are checked when the value is made. It can't be pickled, and its representation hides
secrets: other processes get the name of a file instead (`client_config`). Modules for TLS are loaded when first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from millrace.errors import InvalidConfigError, MillraceError
from millrace.security.client_properties import (
    KNOWN,
    PROTOCOL,
    SECRETS,
    PropertyError,
    canonical,
)
from millrace.security.property_names import JAAS, MECHANISM
from millrace.security.protocols import SecurityProtocol

if TYPE_CHECKING:
    import socket
    import ssl

    from millrace.security.sasl.mechanisms import ClientMechanism

HIDDEN = "[hidden]"


class ClientSecurity:
    """The security of a client's connections. `PLAINTEXT` secures nothing.

    Attributes:
        protocol: `security.protocol`.
        context: What TLS needs; None where the protocol has no TLS.
    """

    PLAINTEXT: ClassVar[ClientSecurity]
    __slots__ = ("_properties", "context", "protocol")
    protocol: SecurityProtocol
    context: ssl.SSLContext | None
    _properties: Mapping[str, str]

    def __init__(self, properties: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        object.__setattr__(self, "_properties", dict(properties))
        object.__setattr__(self, "protocol", SecurityProtocol[properties[PROTOCOL]])
        object.__setattr__(self, "context", context)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, origins: Mapping[str, str] | None = None) -> Self:
        """Returns the security that the properties ask for; those that are not about security are ignored.

        InvalidConfigError names the property, and where it was found if `origins` says so.
        """
        found_at = origins or {}
        try:
            checked = canonical(properties)
            return cls(checked, _checked_context(checked))
        except PropertyError as error:
            raise _at(found_at.get(error.name) or found_at.get(PROTOCOL), error) from error
        except InvalidConfigError as error:
            raise _at(_place_in(str(error), found_at), error) from error

    @property
    def mechanism(self) -> str:
        """The mechanism of SASL by its name, or "" without SASL."""
        return self._properties.get(MECHANISM, "") if self.protocol.uses_sasl else ""

    def new_mechanism(self) -> ClientMechanism:
        """Returns the client's side of one more authentication."""
        from millrace.security.sasl.mechanisms import client_mechanism  # noqa: PLC0415 -- loaded where it is used

        return client_mechanism(self._properties)

    def secure(self, connected: socket.socket, host: str) -> socket.socket:
        """Returns the socket over which to talk to a host: after the TLS handshake, or as it is.

        Raises TlsError where the host does not prove its identity, or refuses this client; raises OSError where the
        connection fails.
        """
        if self.context is None:
            return connected
        try:
            return self.context.wrap_socket(connected, server_hostname=host)
        except OSError as error:
            raise self.explained(error, host) or error from error

    def explained(self, error: OSError, peer: str) -> MillraceError | None:
        """Returns the TlsError that explains a failed call of a socket; None where TLS is not the cause."""
        if self.context is None:
            return None
        from millrace.security.tls_errors import tls_error  # noqa: PLC0415 -- loaded where it is used

        return tls_error(error, peer)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: the security of a client does not change")

    def __repr__(self) -> str:
        shown = (f"{name}={HIDDEN if name in SECRETS else value}" for name, value in sorted(self._properties.items()))
        return f"ClientSecurity({', '.join(shown)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the security of a client is not pickled: pass on the file that it was read from")


ClientSecurity.PLAINTEXT = ClientSecurity({PROTOCOL: SecurityProtocol.PLAINTEXT.name}, None)


def _checked_context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """Checks the mechanism's credentials, and returns what TLS needs; None where the protocol has no TLS."""
    protocol = SecurityProtocol[properties[PROTOCOL]]
    if protocol.uses_sasl:
        _check_login(properties)
    if not protocol.uses_tls:
        return None
    from millrace.security.tls import client_context  # noqa: PLC0415 -- loaded where it is used

    return client_context(properties)


def _check_login(properties: Mapping[str, str]) -> None:
    from millrace.security.sasl.mechanisms import check_login  # noqa: PLC0415 -- loaded where it is used

    try:
        check_login(properties)
    except InvalidConfigError as error:
        name, _, reason = str(error).partition(": ")
        raise PropertyError(*((name, reason) if name in KNOWN else (JAAS, str(error)))) from error


def _place_in(message: str, found_at: Mapping[str, str]) -> str | None:
    return next((place for name, place in found_at.items() if message.startswith(name)), found_at.get(PROTOCOL))


def _at(place: str | None, error: InvalidConfigError) -> InvalidConfigError:
    return error if place is None else InvalidConfigError(f"{place}: {error}")
