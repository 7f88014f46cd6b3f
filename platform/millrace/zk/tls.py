"""Makes the TLS context of connections to ZooKeeper: Kafka's properties `zookeeper.ssl.*` are those of any client.

zookeeper.ssl.NAME                 ssl.NAME (`millrace.security.tls`)
zookeeper.ssl.keystore.password    also that of an encrypted key in a PEM
no type of a store                 the ending of its file tells it: .pem and .crt are PEM, all others PKCS12

An error names the property by its name in the file of properties.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from millrace.errors import InvalidConfigError
from millrace.security.property_names import IDENTIFICATION
from millrace.zk.security_config import ZooKeeperSecurityConfig

PEM, PKCS12 = "PEM", "PKCS12"
PEM_ENDINGS = (".pem", ".crt")


def tls_context(config: ZooKeeperSecurityConfig) -> ssl.SSLContext:
    """Returns the context.

    Raises InvalidConfigError, which names the property and the file, and has no secret in it.
    """
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
