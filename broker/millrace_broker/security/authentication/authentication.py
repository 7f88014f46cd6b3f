"""The state table of one connection on a listener that asks for SASL (KIP-43, KIP-152, KIP-368).

    state            what may come                        what it becomes
    INITIAL          ApiVersions                          VERSIONS_TOLD; the same if its version is not served
                     SaslHandshake v0, v1                 BARE_TOKENS, TOKENS
    VERSIONS_TOLD    SaslHandshake v0, v1                 BARE_TOKENS, TOKENS
    BARE_TOKENS      frames that are tokens               the same until the last, then COMPLETE
    TOKENS           SaslAuthenticate                     the same until the last, then COMPLETE
    COMPLETE         every request                        the same
                     SaslHandshake, where sessions end    TOKENS again, to authenticate once more
    FAILED           nothing

A mechanism that is not offered, and a token that proves nothing, lead to FAILED. A session ends with the token that
opened it, and after `connections.max.reauth.ms`. Then only SaslHandshake is admitted. Who authenticates once more, at
the earliest a second after the last time, has to be the same user, by the same mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from millrace.clock import Clock
from millrace.errors import IllegalSaslStateError, SaslAuthenticationError, UnsupportedSaslMechanismError
from millrace.security.sasl.names import OAUTHBEARER, PLAIN, Authenticated
from millrace.security.sasl.oauthbearer import OAuthBearerServer
from millrace.security.sasl.plain import PlainServer
from millrace.security.sasl.scram import Known, ScramServer
from millrace.wire.api import ApiKey, VersionRange
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.authentication.listener_security import ListenerSecurity
from millrace_broker.security.client_session import USER, Challenge, Principal

FIRST_VERSION_WITH_HEADERS = 1  # of SaslHandshake: what follows are requests, and not bare tokens
REAUTHENTICATION_INTERVAL_MS = 1_000
CheckToken = Callable[[str], Authenticated]
ServerMechanism = PlainServer | ScramServer | OAuthBearerServer  # `respond` raises SaslAuthenticationError if it fails


class State(Enum):
    """How far the SASL login on a connection has come; the module's table says what may come next."""

    INITIAL = auto()
    VERSIONS_TOLD = auto()
    BARE_TOKENS = auto()
    TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


ADMITTED: Mapping[State, tuple[ApiKey, ...]] = {
    State.INITIAL: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.VERSIONS_TOLD: (ApiKey.SASL_HANDSHAKE,),
    State.BARE_TOKENS: (),
    State.TOKENS: (ApiKey.SASL_AUTHENTICATE,),
    State.COMPLETE: tuple(ApiKey),
    State.FAILED: (),
}


class Authentication:
    """The SASL login of one connection: the first one, and later ones that renew the session."""

    def __init__(
        self,
        security: ListenerSecurity,
        new_mechanism: Callable[[str], ServerMechanism],
        clock: Clock,
        api_versions: VersionRange,
    ) -> None:
        """Takes how clients authenticate, what makes a mechanism by name, and the served versions of ApiVersions."""
        self._security = security
        self._new_mechanism = new_mechanism
        self._clock = clock
        self._api_versions = api_versions
        self._mechanism: ServerMechanism | None = None
        self._proven_by = ""  # the mechanism of the first authentication
        self._begun_ms = 0  # when the last authentication began
        self._ends_ms: int | None = None  # when the session does
        self.state = State.INITIAL
        self.authenticated: Authenticated | None = None

    @property
    def principal(self) -> Principal | None:
        """Returns the client's principal; None before it has logged in."""
        return None if self.authenticated is None else Principal(USER, self.authenticated.user)

    @property
    def is_endless(self) -> bool:
        """Returns whether the client has logged in and its session never ends, so that it sends no more logins."""
        return self.state is State.COMPLETE and self._ends_ms is None

    def admit(self, api_key: int, version: int) -> None:
        """Raises IllegalSaslStateError for a request that may not come before or during the login, or after its end."""
        if self.state is State.COMPLETE:
            is_over = self._ends_ms is not None and self._clock.monotonic_ms() >= self._ends_ms
            if is_over and api_key != ApiKey.SASL_HANDSHAKE:
                raise IllegalSaslStateError(f"the session of {self.principal} has ended")
            return
        if api_key not in ADMITTED[self.state]:
            raise IllegalSaslStateError(f"a request with API key {api_key} came while authenticating")
        if api_key == ApiKey.API_VERSIONS and version in self._api_versions:
            self.state = State.VERSIONS_TOLD

    def handshake(self, version: int, mechanism: str) -> None:
        """Takes the mechanism that a client chooses.

        Raises IllegalSaslStateError where no login may begin, UnsupportedSaslMechanismError where it is not offered.
        """
        now_ms = self._clock.monotonic_ms()
        if self.state is State.COMPLETE:
            if self._ends_ms is None or now_ms - self._begun_ms < REAUTHENTICATION_INTERVAL_MS:
                raise IllegalSaslStateError("this session does not end, or has begun less than a second ago")
        elif ApiKey.SASL_HANDSHAKE not in ADMITTED[self.state]:
            raise IllegalSaslStateError("a SaslHandshake is not expected now")
        if mechanism not in self._security.mechanisms:
            self.state = State.FAILED
            raise UnsupportedSaslMechanismError(f"this listener does not offer the mechanism {mechanism[:64]!r}")
        self._begun_ms = now_ms
        self._mechanism = self._new_mechanism(mechanism)
        self.state = State.TOKENS if version >= FIRST_VERSION_WITH_HEADERS else State.BARE_TOKENS

    def authenticate(self, token: bytes) -> Challenge:
        """Takes a token of the chosen mechanism, and returns the answer to it.

        Raises SaslAuthenticationError where it proves no identity, IllegalSaslStateError where no token may come now.
        """
        mechanism = self._mechanism
        if mechanism is None or self.state not in (State.TOKENS, State.BARE_TOKENS):
            raise IllegalSaslStateError("a token is not expected now")
        try:
            self._check_same_mechanism(mechanism)
            challenge = mechanism.respond(token)
            authenticated = mechanism.authenticated
            if authenticated is None:
                return Challenge(challenge, 0)
            self._check_same_user(authenticated)
        except SaslAuthenticationError:
            self.state = State.FAILED
            raise
        return Challenge(challenge, self._complete(mechanism, authenticated))

    def _complete(self, mechanism: ServerMechanism, authenticated: Authenticated) -> int:
        """Begins the session of a client that has proven who it is; returns how many ms it lasts, 0 for no end."""
        self.authenticated, self._proven_by, self._mechanism = authenticated, mechanism.name, None
        limits_ms = [limit for limit in (self._security.max_reauth_ms.get(mechanism.name, 0),) if limit > 0]
        if authenticated.expires_ms is not None:
            limits_ms.append(max(0, authenticated.expires_ms - self._clock.now_ms()))
        lifetime_ms = min(limits_ms, default=0)
        self._ends_ms = self._clock.monotonic_ms() + lifetime_ms if limits_ms else None
        self.state = State.COMPLETE
        return lifetime_ms

    def _check_same_mechanism(self, mechanism: ServerMechanism) -> None:
        if self._proven_by and mechanism.name != self._proven_by:
            raise SaslAuthenticationError(
                f"the session was opened by the mechanism {self._proven_by} and can't go on by {mechanism.name}"
            )

    def _check_same_user(self, authenticated: Authenticated) -> None:
        if self.authenticated is not None and authenticated.user != self.authenticated.user:
            raise SaslAuthenticationError("a session can't go on as another user")


def new_mechanism(
    name: str, security: ListenerSecurity, credentials: Credentials, check_token: CheckToken | None
) -> ServerMechanism:
    """Returns the server side of a mechanism; OAUTHBEARER needs `check_token`. Raises UnsupportedSaslMechanismError."""
    if name == PLAIN:
        return PlainServer(security.passwords)
    if name == OAUTHBEARER and check_token is not None:
        return OAuthBearerServer(check_token)
    if name not in security.mechanisms:
        raise UnsupportedSaslMechanismError(f"this listener does not offer the mechanism {name!r}")

    def lookup(user: str, is_by_token: bool) -> Known:
        return credentials.find(name, user, is_by_token=is_by_token)

    return ScramServer(name, lookup)
