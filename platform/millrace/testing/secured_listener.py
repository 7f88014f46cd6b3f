"""The security of a broker's listener for one test: an authority, a certificate and a user, made for it alone.

    secured = secured_listener(folder, "SASL_SSL")
    BrokerProcess(…, protocol=secured.protocol, config=secured.config)
    confluent_kafka.Producer({"bootstrap.servers": …, **secured.client_properties})

The password and the key are in files of the folder, which should be readable by its owner alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import javaproperties

from millrace.addresses import LOOPBACK
from millrace.clock import SystemClock
from millrace.errors import InvalidConfigError
from millrace.security.authority import Authority
from millrace.security.protocols import SecurityProtocol

USER, MECHANISM = "tester", "PLAIN"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD_BYTES = 24


class SecuredListener(NamedTuple):
    """A security protocol, the broker's file of properties, and the properties of clients, which librdkafka takes."""

    protocol: str
    config: Path
    client_properties: Mapping[str, str]


def secured_listener(folder: Path, name: str) -> SecuredListener:
    """Makes what a listener with this security protocol needs. Raises InvalidConfigError for an unknown name."""
    if name not in SecurityProtocol.__members__:
        raise InvalidConfigError(f"security={name}: expected one of {', '.join(SecurityProtocol.__members__)}")
    protocol = SecurityProtocol[name]
    broker: dict[str, str] = {}
    client = {"security.protocol": name}
    if protocol.uses_tls:
        now_ms = SystemClock().now_ms()
        authority = Authority.new(now_ms)
        key_store, trusted = folder / "broker.pem", folder / "ca.pem"
        key_store.write_text(authority.issue(("localhost", LOOPBACK), now_ms), encoding="utf-8")
        trusted.write_text(authority.trusted, encoding="utf-8")
        broker |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
        client |= {"ssl.ca.location": str(trusted)}
    if protocol.uses_sasl:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        broker["sasl.enabled.mechanisms"] = MECHANISM
        jaas = f"listener.name.{name.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
        broker[jaas] = f'{MODULE} required user_{USER}="{password}";'
        client |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": password}
    config = folder / "broker.properties"
    config.write_text(javaproperties.dumps(broker, timestamp=False), encoding="utf-8")
    return SecuredListener(name, config, client)
