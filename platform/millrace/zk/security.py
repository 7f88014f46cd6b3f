"""How a session with ZooKeeper is secured: by TLS, by a login, and by the access that its nodes are given.

The properties have Kafka's names. `java.security.auth.login.config` is a system property of Kafka's JVM and not one of
its broker: here it is a property like the others, so that a JAAS file serves as it is.

    zookeeper.ssl.NAME                 ssl.NAME (`millrace.security.tls`)
    zookeeper.ssl.keystore.password    also that of an encrypted key in a PEM
    no type of a store                 the ending of its file tells it: .pem and .crt are PEM, all others PKCS12

The identity of a session is the user of a JAAS file (SASL DIGEST-MD5, scheme `sasl`), or the subject of
a client certificate (scheme `x509`). So the nodes of a secured cluster have this access:

    a node         may be changed by its creator's identity alone, and read by everyone
    SENSITIVE      these nodes, and those below them, are read by that identity alone: they hold secrets
    /consumers     stays open, since members of groups that have no identity write there

The user is in the section Client of a JAAS file of Java's clients. A file may have other sections, for Kafka's own
listeners; they are passed over. Comments are those of Java. Kerberos (`Krb5LoginModule`) is refused by name.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Self, TypeVar

from millrace.config import ConfigTable, build, declared_keys, setting
from millrace.errors import InvalidConfigError
from millrace.security.protocols import IDENTIFICATION
from millrace.zk import paths

SECTION = "Client"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
MAX_FILE_BYTES = 1 << 20
TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<sign>[{};=])|(?P<word>[^\s{};="/]+)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Login:
    """The user name and password with which a session logs in to ZooKeeper (SASL DIGEST-MD5)."""

    username: str
    password: str = field(repr=False)


def read_login(file: str) -> Login:
    """Returns the login in the section Client of a JAAS file; raises InvalidConfigError, which names the file."""
    try:
        with Path(file).open(encoding="utf-8") as content:
            return parse_login(content.read(MAX_FILE_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfigError(f"java.security.auth.login.config={file}: {reason}") from None


def parse_login(text: str) -> Login:
    """Returns the login in the section Client of a JAAS file's text; raises ValueError, whose text has no secret."""
    module, options = _client_entry(list(_tokens(text)))
    if module != DIGEST_MODULE:
        raise ValueError(f"the section {SECTION} has the login module {module}, and only {DIGEST_MODULE} is served")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"the section {SECTION} has no {' and no '.join(missing)}")
    return Login(options["username"], options["password"])


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1} is no part of a JAAS file")
        position = found.end()
        if found["quoted"] is not None:
            yield re.sub(r"\\(.)", r"\1", found["quoted"])
        elif found["skipped"] is None:
            yield found[0]


def _client_entry(tokens: list[str]) -> tuple[str, dict[str, str]]:
    """Returns the login module's class and its options from the tokens of a JAAS file's section Client."""
    starts = [index for index, pair in enumerate(pairwise(tokens)) if pair == (SECTION, "{")]
    if not starts:
        raise ValueError(f"there is no section {SECTION}")
    entry = tokens[starts[0] + 2 :]
    if ";" not in entry:
        raise ValueError(f"the section {SECTION} has no end")
    entry = entry[: entry.index(";")]
    if len(entry) < 2 or len(entry) % 3 != 2 or any(sign != "=" for sign in entry[3::3]):
        raise ValueError(f"the section {SECTION} is not MODULE required NAME=VALUE ...;")
    return entry[0], dict(zip(entry[2::3], entry[4::3], strict=True))


Given = TypeVar("Given")
NIO_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNIO"
NETTY_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurityConfig:
    """The properties that secure sessions; `zookeeper_ssl_protocol` is `zookeeper.ssl.protocol`, and so on."""

    zookeeper_ssl_client_enable: bool = setting(False, "Speak TLS to ZooKeeper.")
    zookeeper_clientCnxnSocket: str = setting(  # noqa: N815  # the field has the property's name
        "",
        "Kafka needs Netty's for TLS; here either will do, but NIO's with TLS is refused, as by ZooKeeper.",
        choices=("", NIO_SOCKET, NETTY_SOCKET),
        has_default=False,
    )
    zookeeper_ssl_keystore_location: str = setting(
        "", "The file of this client's key and certificates, if ZooKeeper asks for them.", has_default=False
    )
    zookeeper_ssl_keystore_password: str = setting("", "Opens the key store.", has_default=False, is_secret=True)
    zookeeper_ssl_keystore_type: str = setting(
        "", "PEM or PKCS12; told by the file's ending if empty.", has_default=False
    )
    zookeeper_ssl_truststore_location: str = setting(
        "", "The file of the authorities that are trusted; those of the machine without one.", has_default=False
    )
    zookeeper_ssl_truststore_password: str = setting("", "Opens the trust store.", has_default=False, is_secret=True)
    zookeeper_ssl_truststore_type: str = setting(
        "", "PEM or PKCS12; told by the file's ending if empty.", has_default=False
    )
    zookeeper_ssl_protocol: str = setting("TLS", "TLSv1.2, which is Kafka's default, TLSv1.3, or TLS for both.")
    zookeeper_ssl_enabled_protocols: str = setting(
        "", "Protocols in the place of zookeeper.ssl.protocol.", is_list=True, has_default=False
    )
    zookeeper_ssl_cipher_suites: str = setting(
        "", "The suites of TLS 1.2 by their standard names.", is_list=True, has_default=False
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "HTTPS", "Whether the server's certificate must name its host: HTTPS, or empty for no.", pattern="(?i:https)?"
    )
    zookeeper_set_acl: bool = setting(False, "Give what this broker writes to ZooKeeper to its own identity alone.")
    java_security_auth_login_config: str = setting(
        "", "The JAAS file whose section Client has the user and the password for ZooKeeper.", has_default=False
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Returns the properties that secure ZooKeeper, out of all these; raises InvalidConfigError."""
        known, _ = split_security(properties)
        config = build(cls, ZOOKEEPER_SECURITY.parse(known))
        _check(config)
        return config

    @property
    def has_certificate(self) -> bool:
        """Whether this client identifies itself by a TLS certificate."""
        return self.zookeeper_ssl_client_enable and bool(self.zookeeper_ssl_keystore_location)


ZOOKEEPER_SECURITY = ConfigTable(declared_keys(ZooKeeperSecurityConfig))


def split_security(properties: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, Given]]:
    """Returns two mappings: the properties that secure a session with ZooKeeper, and all others."""
    ours = {name: value for name, value in properties.items() if name in ZOOKEEPER_SECURITY.keys}
    return ours, {name: value for name, value in properties.items() if name not in ours}


def _check(config: ZooKeeperSecurityConfig) -> None:
    if config.zookeeper_ssl_client_enable and config.zookeeper_clientCnxnSocket == NIO_SOCKET:
        raise InvalidConfigError(f"zookeeper.clientCnxnSocket={NIO_SOCKET}: for TLS it has to be {NETTY_SOCKET}")
    if config.zookeeper_set_acl and not (config.has_certificate or config.java_security_auth_login_config):
        raise InvalidConfigError(
            "zookeeper.set.acl=true: Invalid value, there is no identity at ZooKeeper that nodes could belong to; "
            "give java.security.auth.login.config, or zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
        )


PEM, PKCS12 = "PEM", "PKCS12"
PEM_ENDINGS = (".pem", ".crt")


def tls_context(config: ZooKeeperSecurityConfig) -> ssl.SSLContext:
    """Returns the TLS context of a session; raises InvalidConfigError, which names property and file, no secret."""
    # Few processes speak TLS to ZooKeeper, and what reads certificates takes a tenth of a second to load.
    from millrace.security.tls import client_context  # noqa: PLC0415

    try:
        return client_context(_client_properties(config))
    except InvalidConfigError as error:
        raise InvalidConfigError(re.sub(r"(?<![\w.])ssl\.", "zookeeper.ssl.", str(error))) from error


def _client_properties(config: ZooKeeperSecurityConfig) -> dict[str, str]:
    key_store, trust_store = config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_truststore_location
    properties = {
        "ssl.keystore.location": key_store,
        "ssl.keystore.type": _type(config.zookeeper_ssl_keystore_type, key_store),
        "ssl.truststore.location": trust_store,
        "ssl.truststore.type": _type(config.zookeeper_ssl_truststore_type, trust_store),
        "ssl.truststore.password": config.zookeeper_ssl_truststore_password,
        "ssl.protocol": config.zookeeper_ssl_protocol,
        "ssl.enabled.protocols": config.zookeeper_ssl_enabled_protocols,
        "ssl.cipher.suites": config.zookeeper_ssl_cipher_suites,
        IDENTIFICATION: config.zookeeper_ssl_endpoint_identification_algorithm,
    }
    is_pem = properties["ssl.keystore.type"] == PEM
    properties["ssl.key.password" if is_pem else "ssl.keystore.password"] = config.zookeeper_ssl_keystore_password
    return {name: value for name, value in properties.items() if value or name.endswith("algorithm")}


def _type(given: str, location: str) -> str:
    return given.upper() or (PEM if Path(location).suffix.lower() in PEM_ENDINGS else PKCS12)


SENSITIVE = ("/config/users", "/config/brokers", paths.DELEGATION_TOKENS)


class Access(Enum):
    """The three kinds of access control (ZooKeeper's ACLs) that Kafka gives to its nodes."""

    OPEN = "everyone may do everything"
    CREATORS = "its creator may do everything, and everyone may read it"
    SECRET = "its creator may do everything, and nobody else anything"  # noqa: S105  # not a password


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a session with ZooKeeper is secured: TLS, login, and whether nodes that it makes restrict access."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None
    sets_acls: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Returns the security that the properties set; reads the files that they name. Raises InvalidConfigError."""
        config = ZooKeeperSecurityConfig.from_properties(properties)
        return cls(
            tls_context(config) if config.zookeeper_ssl_client_enable else None,
            read_login(config.java_security_auth_login_config) if config.java_security_auth_login_config else None,
            config.zookeeper_set_acl,
        )

    def access(self, path: str) -> Access:
        """Returns the access control of a node that the session makes at this path, which is without the chroot."""
        return access(path) if self.sets_acls else Access.OPEN


UNSECURED = ZooKeeperSecurity()


def access(path: str) -> Access:
    """Returns the access control that Kafka gives a node of this path in a secured cluster (ZkData.defaultAcls)."""
    if path == paths.CONSUMERS:
        return Access.OPEN
    return Access.SECRET if path.startswith(SENSITIVE) else Access.CREATORS
