"""Makes the broker's side of a mechanism for each authentication on a listener."""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import UnsupportedSaslMechanismError
from millrace.security.sasl.names import OAUTHBEARER, PLAIN
from millrace.security.sasl.oauthbearer import OAuthBearerServer
from millrace.security.sasl.plain import PlainServer
from millrace.security.sasl.scram_server import Known, ScramServer
from millrace.security.sasl.server_mechanism import Authenticated, ServerMechanism
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.authentication.listener_security import ListenerSecurity

CheckToken = Callable[[str], Authenticated]


def new_mechanism(
    name: str, security: ListenerSecurity, credentials: Credentials, check_token: CheckToken | None
) -> ServerMechanism:
    """Returns a mechanism that the listener offers; `check_token` is needed for OAUTHBEARER."""
    if name == PLAIN:
        return PlainServer(security.passwords)
    if name == OAUTHBEARER and check_token is not None:
        return OAuthBearerServer(check_token)
    if name not in security.mechanisms:
        raise UnsupportedSaslMechanismError(f"this listener does not offer the mechanism {name!r}")

    def lookup(user: str, is_by_token: bool) -> Known:
        return credentials.find(name, user, is_by_token=is_by_token)

    return ScramServer(name, lookup)
