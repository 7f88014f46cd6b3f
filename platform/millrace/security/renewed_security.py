"""The security of a client that runs for long: it is read again for each connection and each authentication.

    security = RenewedSecurity(lambda: read_client_security("client.properties"))

So a password that was changed, a certificate that was renewed, and a user in another's place are used from the next
login on, be it the one by which a session goes on, or one after a failed one. What can't be read, as a file that is
just being written, is told once, and the client goes on with what it has. So it does where TLS or the login would be
given up, as an empty file says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from millrace.errors import InvalidConfigError, MillraceError
from millrace.security.client_security import ClientSecurity

if TYPE_CHECKING:
    import socket

    from millrace.security.sasl.mechanisms import ClientMechanism

logger = logging.getLogger(__name__)


class RenewedSecurity(ClientSecurity):
    """What `read` returned last without an error; the first call raises what that raises."""

    __slots__ = ("_read", "_refused")
    _read: Callable[[], ClientSecurity]
    _refused: str

    def __init__(self, read: Callable[[], ClientSecurity]) -> None:
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_refused", "")
        self._take(read())

    def new_mechanism(self) -> ClientMechanism:
        """Returns the client's side of a new SASL authentication, with the present credentials."""
        self._renew()
        return super().new_mechanism()

    def secure(self, connected: socket.socket, host: str) -> socket.socket:
        """Returns the socket wrapped in TLS, if the present protocol has TLS; raises what ClientSecurity's raises."""
        self._renew()
        return super().secure(connected, host)

    def _renew(self) -> None:
        try:
            self._take(self._checked(self._read()))
            refused = ""
        except MillraceError as error:
            refused = str(error)
            if refused != self._refused:
                logger.warning("the credentials that were read before are used on: %s", error)
        object.__setattr__(self, "_refused", refused)

    def _checked(self, found: ClientSecurity) -> ClientSecurity:
        before, now = self.protocol, found.protocol
        if (before.uses_tls and not now.uses_tls) or (before.uses_sasl and not now.uses_sasl):
            raise InvalidConfigError(
                f"security.protocol was {before.name}, and is {now.name}, which proves less; a new start takes it"
            )
        return found

    def _take(self, found: ClientSecurity) -> None:
        super().__init__(found._properties, found.context)  # noqa: SLF001  another one of the same kind
