"""How a client's connections are secured: an immutable value, made of Kafka's client properties.

    security = ClientSecurity.from_properties({"security.protocol": "SSL", "ssl.truststore.location": "ca.pem"})
    socket   = security.secure(connected, "kafka-1")          the TLS handshake, where the protocol asks for it
    security.new_mechanism()                                  the client's side of one authentication by SASL

Certificates and credentials are checked when the value is made. It can't be pickled, and its representation hides
secrets: other processes get the name of a file instead (`client_config`). Modules for TLS are loaded when first used.

The properties are checked one by one and with one another:

    security.protocol     PLAINTEXT, SSL (TLS), SASL_PLAINTEXT, SASL_SSL
    ssl.*                 whom to trust, and the client's own certificate
    sasl.*                the mechanism and its credentials

Kafka's names for Java clients are the canonical ones; `SYNONYMS` and `COMPOSED` are librdkafka's, which are rewritten.
Properties with other prefixes are ignored, since a file for Kafka's tools may have them, too. No error message has a
secret in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from millrace.config import under_one_name
from millrace.errors import InvalidConfigError, MillraceError
from millrace.security.protocols import IDENTIFICATION, JAAS, MECHANISM, SecurityProtocol
from millrace.security.sasl.names import MECHANISMS, OAUTHBEARER
from millrace.suggestions import did_you_mean

if TYPE_CHECKING:
    import socket
    import ssl

    from millrace.security.sasl.mechanisms import ClientMechanism

PROTOCOL = "security.protocol"
TRUSTSTORE, KEYSTORE = "ssl.truststore.location", "ssl.keystore.location"
CERTIFICATES, CHAIN, KEY = "ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"
TRUSTSTORE_TYPE, KEYSTORE_TYPE = "ssl.truststore.type", "ssl.keystore.type"
USERNAME, PASSWORD = "sasl.username", "sasl.password"
CERTIFICATE_FILE, KEY_FILE = "ssl.certificate.location", "ssl.key.location"

SYNONYMS = {"sasl.mechanisms": MECHANISM, "ssl.ca.location": TRUSTSTORE}
COMPOSED = (USERNAME, PASSWORD, CERTIFICATE_FILE, KEY_FILE)
STORE_TYPES = ("PEM", "PKCS12", "JKS")
CLIENT_CREDENTIALS = "sasl.oauthbearer.client.credentials."
SECRETS = frozenset(
    {
        *(JAAS, PASSWORD, KEY, "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password"),
        *(f"{CLIENT_CREDENTIALS}client.secret", "sasl.oauthbearer.assertion.private.key.passphrase"),
    }
)
OAUTH = tuple(
    f"sasl.oauthbearer.{name}"
    for name in (
        *("token.endpoint.url", "scope.claim.name", "sub.claim.name", "header.urlencode"),
        *("clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.url"),
        *("jwks.endpoint.refresh.ms", "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.retry.backoff.max.ms"),
    )
)
LOGIN = tuple(
    f"sasl.login.{name}"
    for name in (
        *("connect.timeout.ms", "read.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        *("refresh.buffer.seconds", "refresh.min.period.seconds", "refresh.window.factor", "refresh.window.jitter"),
    )
)
KNOWN = (
    *(PROTOCOL, MECHANISM, JAAS, *OAUTH, *LOGIN, *COMPOSED, *SYNONYMS),
    *(TRUSTSTORE, TRUSTSTORE_TYPE, "ssl.truststore.password", CERTIFICATES),
    *(KEYSTORE, KEYSTORE_TYPE, "ssl.keystore.password", "ssl.key.password", CHAIN, KEY),
    *("ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", IDENTIFICATION),
)
LOGIN_HANDLER = "sasl.login.callback.handler.class"
OAUTH_LOGIN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerLoginCallbackHandler" for name in ("", "secured.")
)
OF_JAVA = frozenset(
    {
        *("sasl.client.callback.handler.class", LOGIN_HANDLER, "sasl.login.class", "ssl.engine.factory.class"),
        *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "security.providers"),
        *("ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
    }
)
PREFIXES = ("security.", "ssl.", "sasl.")


class PropertyError(InvalidConfigError):
    """A security property that is missing, or has a wrong value; `name` is the property's name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


def is_of_security(name: str) -> bool:
    """Returns whether a property's name has a prefix of the security properties' names (`ssl.`, `sasl.` …)."""
    return name.startswith(PREFIXES)


def canonical(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the security properties, checked, with Kafka's names where librdkafka has other ones.

    Files of certificates and keys must be readable, and are not parsed. Raises PropertyError, which names a property.
    """
    given = {name: value.strip() for name, value in properties.items() if is_of_security(name)}
    for name, value in given.items():
        _check_name(name, value)
    given.pop(LOGIN_HANDLER, None)
    given = _checked_synonyms(given)
    protocol = _protocol(given)
    _check_files(given)
    _check_stores(given)
    _take_pem_files(given)
    if protocol.uses_sasl:
        _check_sasl(given)
    given[PROTOCOL] = protocol.name
    return given


def _check_name(name: str, value: str) -> None:
    if name == LOGIN_HANDLER and value in OAUTH_LOGIN_HANDLERS:
        return  # Java needs it for OAUTHBEARER; what it does is done here anyway
    if name in OF_JAVA:
        raise PropertyError(name, "this names something of Java, which has no meaning here; leave it out")
    if name.startswith("sasl.kerberos."):
        raise PropertyError(name, f"Kerberos is not spoken here; {MECHANISM} is one of {', '.join(MECHANISMS)}")
    if name.startswith(CLIENT_CREDENTIALS):
        raise PropertyError(name, f"write clientId and clientSecret into the login module of {JAAS}")
    if name not in KNOWN:
        raise PropertyError(name, f"there is no such property{did_you_mean(name, KNOWN)}")


def _checked_synonyms(given: Mapping[str, str]) -> dict[str, str]:
    try:
        found = under_one_name(given.items(), SYNONYMS)
    except InvalidConfigError:
        name = next(one for one in SYNONYMS if one in given and given.get(SYNONYMS[one], given[one]) != given[one])
        raise PropertyError(name, f"{SYNONYMS[name]} is given too, with another value") from None
    if "ssl.ca.location" in given:
        found.setdefault(TRUSTSTORE_TYPE, "PEM")
    return found


def _protocol(given: Mapping[str, str]) -> SecurityProtocol:
    if PROTOCOL not in given:
        for name in given:
            needed = "SASL_SSL" if name.startswith("sasl.") else "SSL"
            raise PropertyError(name, f"it has no effect without {PROTOCOL}, for example {needed}")
        return SecurityProtocol.PLAINTEXT
    try:
        return SecurityProtocol[given[PROTOCOL].upper()]
    except KeyError:
        raise PropertyError(
            PROTOCOL, f"{given[PROTOCOL]} is none of {', '.join(one.name for one in SecurityProtocol)}"
        ) from None


def _check_files(given: Mapping[str, str]) -> None:
    for name in (TRUSTSTORE, KEYSTORE, CERTIFICATE_FILE, KEY_FILE):
        if name in given:
            try:
                with Path(given[name]).open("rb"):
                    pass
            except OSError as error:
                raise PropertyError(name, f"{given[name]}: {error.strerror}") from error


def _check_stores(given: Mapping[str, str]) -> None:
    for name in (TRUSTSTORE_TYPE, KEYSTORE_TYPE):
        if name in given and given[name].upper() not in STORE_TYPES:
            raise PropertyError(name, f"{given[name]} is none of {', '.join(STORE_TYPES)}")
    if given.get(IDENTIFICATION, "").lower() not in ("", "https", "none"):
        raise PropertyError(IDENTIFICATION, f"{given[IDENTIFICATION]} is not https, nor empty, which checks none")
    for name, other in _contradictions():
        if name in given and other in given:
            raise PropertyError(name, f"{other} is given too; one of them is to go")
    for name, other in ((CHAIN, KEY), (KEY, CHAIN), (CERTIFICATE_FILE, KEY_FILE), (KEY_FILE, CERTIFICATE_FILE)):
        if name in given and other not in given:
            raise PropertyError(name, f"{other} is needed too")


def _contradictions() -> Iterator[tuple[str, str]]:
    yield CERTIFICATES, TRUSTSTORE
    yield CHAIN, KEYSTORE
    yield CERTIFICATE_FILE, KEYSTORE
    yield CERTIFICATE_FILE, CHAIN
    yield USERNAME, JAAS


def _take_pem_files(given: dict[str, str]) -> None:
    """Replaces librdkafka's certificate and key files by their text, and its identification `none` by Kafka's ""."""
    if given.get(IDENTIFICATION, "").lower() == "none":
        given[IDENTIFICATION] = ""
    for name, to in ((CERTIFICATE_FILE, CHAIN), (KEY_FILE, KEY)):
        path = given.pop(name, None)
        if path is None:
            continue
        try:
            given[to] = Path(path).read_text(encoding="ascii")
        except ValueError:
            raise PropertyError(name, f"{path} is not a PEM file") from None
        given[KEYSTORE_TYPE] = "PEM"


def _check_sasl(given: dict[str, str]) -> None:
    mechanism = given.get(MECHANISM)
    if not mechanism:
        raise PropertyError(MECHANISM, f"{given[PROTOCOL]} needs it: one of {', '.join(MECHANISMS)}")
    if mechanism not in MECHANISMS:
        raise PropertyError(MECHANISM, f"{mechanism} is not spoken here; there are {', '.join(MECHANISMS)}")
    for name, other in ((USERNAME, PASSWORD), (PASSWORD, USERNAME)):
        if name in given and other not in given:
            raise PropertyError(name, f"{other} is needed too")
    if USERNAME in given and mechanism == OAUTHBEARER:
        raise PropertyError(USERNAME, f"{OAUTHBEARER} has no users with passwords; {JAAS} names its login module")
    if USERNAME in given:
        given[JAAS] = jaas_of(mechanism, given.pop(USERNAME), given.pop(PASSWORD))
    if not given.get(JAAS):
        raise PropertyError(JAAS, f"{mechanism} needs it: {login_module(mechanism)} required …;")


def jaas_of(mechanism: str, username: str, password: str) -> str:
    """Returns `MODULE required username="…" password="…";`, the `sasl.jaas.config` of a user of PLAIN or SCRAM."""
    return f"{login_module(mechanism)} required username={_quoted(username)} password={_quoted(password)};"


def login_module(mechanism: str) -> str:
    """Returns the Java class that `sasl.jaas.config` has to name for a SASL mechanism, such as `SCRAM-SHA-256`."""
    from millrace.security.sasl.mechanisms import LOGIN_MODULES  # noqa: PLC0415 -- loaded where SASL is used

    return LOGIN_MODULES[mechanism]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


HIDDEN = "[hidden]"


class ClientSecurity:
    """How a client's connections are secured; `ClientSecurity.PLAINTEXT` is no security.

    Attributes:
        protocol: The value of `security.protocol`.
        context: The TLS context; None where the protocol has no TLS.
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
        """Returns the security that the properties set; properties that are not about security are ignored.

        Raises InvalidConfigError, which names the property and the place that `origins` has for the property.
        """
        found_at = origins or {}
        try:
            checked = canonical(properties)
            return cls(checked, _checked_context(checked))
        except PropertyError as error:
            raise _at(found_at.get(error.name) or found_at.get(PROTOCOL), error) from error
        except InvalidConfigError as error:
            places = (place for name, place in found_at.items() if str(error).startswith(name))
            raise _at(next(places, found_at.get(PROTOCOL)), error) from error

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism; "" without SASL."""
        return self._properties.get(MECHANISM, "") if self.protocol.uses_sasl else ""

    def new_mechanism(self) -> ClientMechanism:
        """Returns the client's side of a new SASL authentication."""
        from millrace.security.sasl.mechanisms import client_mechanism  # noqa: PLC0415 -- loaded where it is used

        return client_mechanism(self._properties)

    def secure(self, connected: socket.socket, host: str) -> socket.socket:
        """Returns the socket wrapped in TLS, after the handshake with `host`; or, if the protocol has no TLS, as it is.

        Raises TlsError where the host's certificate is not valid, or the host refuses this client; raises OSError where
        the connection fails.
        """
        if self.context is None:
            return connected
        try:
            return self.context.wrap_socket(connected, server_hostname=host)
        except OSError as error:
            raise self.explained(error, host) or error from error

    def explained(self, error: OSError, peer: str) -> MillraceError | None:
        """Returns the TlsError that explains why a call of a socket failed; None where TLS is not the cause."""
        if self.context is None:
            return None
        from millrace.security.tls import tls_error  # noqa: PLC0415 -- loaded where it is used

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
    """Checks the properties of SASL, and returns the TLS context; None where the protocol has no TLS."""
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


def _at(place: str | None, error: InvalidConfigError) -> InvalidConfigError:
    return error if place is None else InvalidConfigError(f"{place}: {error}")
