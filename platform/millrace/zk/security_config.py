"""The properties by which a client of ZooKeeper is secured, under Kafka's names.

`java.security.auth.login.config` is a system property of Kafka's JVM and not one of its broker: here it is a property
like the others, so that a JAAS file serves as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from millrace.config import ConfigTable, build, declared_keys, setting
from millrace.errors import InvalidConfigError

Given = TypeVar("Given")
NIO_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNIO"
NETTY_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurityConfig:
    """The properties as fields: `zookeeper_ssl_protocol` is `zookeeper.ssl.protocol`."""

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
        """Parses those of the given properties that are declared here. Raises InvalidConfigError."""
        known, _ = split_security(properties)
        config = build(cls, ZOOKEEPER_SECURITY.parse(known))
        _check(config)
        return config

    @property
    def has_certificate(self) -> bool:
        """Whether this client can show who it is by a certificate."""
        return self.zookeeper_ssl_client_enable and bool(self.zookeeper_ssl_keystore_location)


ZOOKEEPER_SECURITY = ConfigTable(declared_keys(ZooKeeperSecurityConfig))


def split_security(properties: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, Given]]:
    """Returns the properties that are declared here, and all others."""
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
