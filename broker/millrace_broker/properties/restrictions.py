"""Refuses properties that restrict access or encrypt: neither is served, so a value that asks for it stops the start.

A broker that ignored such a property would be open although its operator believes it closed. A value that restricts
nothing is accepted: Kafka's default, the empty text, and `true` for `allow.everyone.if.no.acl.found`.
"""

from __future__ import annotations

import re

from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, kafka_properties
from millrace_broker.properties.listeners import check_plaintext, check_protocol_map

# Properties of listeners, some values of which restrict.
LISTENER_CHECKS = {
    "listener.security.protocol.map": check_protocol_map,
    "listeners": check_plaintext,
    "advertised.listeners": check_plaintext,
}

# What properties ask for, by the beginning of their names; the first entry that fits counts. An entry that ends with a
# dot stands for all names that begin with it.
RESTRICTIONS = {
    "authorizer.": "access control",
    "super.users": "access control",
    "allow.everyone.if.no.acl.found": "access control",
    "principal.builder.class": "authentication",
    "connections.max.reauth.ms": "authentication",
    "sasl.": "authentication (SASL)",
    "delegation.token.": "authentication by delegation tokens",
    "ssl.": "encryption (TLS)",
    "security.inter.broker.protocol": "a listener that is not PLAINTEXT",
    "security.providers": "encryption (TLS)",
    "listener.name.": "security of one listener",
    "zookeeper.ssl.": "encryption (TLS) to ZooKeeper",
    "zookeeper.clientCnxnSocket": "encryption (TLS) to ZooKeeper",
    "zookeeper.set.acl": "access control in ZooKeeper",
    "password.encoder.": "encryption of passwords in ZooKeeper",
    "alter.config.policy.class.name": "a policy for configurations",
    "create.topic.policy.class.name": "a policy for topics",
}
BEGINNINGS = tuple(RESTRICTIONS)
HARMLESS = {"allow.everyone.if.no.acl.found": "true"}
SECRET = re.compile(r"password$|secret|jaas|passphrase|\.key$")


def restriction(name: str) -> str | None:
    """Returns what a property asks for, as a noun phrase; None where it neither restricts nor encrypts."""
    if not name.startswith(BEGINNINGS):
        return None
    for beginning, what in RESTRICTIONS.items():
        if name.startswith(beginning) if beginning.endswith(".") else name == beginning:
            return what
    return None


def check_unrestricted(name: str, text: str) -> None:
    """Raises InvalidConfigError for a value that asks for what is not served; the message has no secret in it."""
    if name in LISTENER_CHECKS:
        try:
            LISTENER_CHECKS[name](text)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{name}={text}: {error}") from None
    what = restriction(name)
    if what is None or not text.strip() or text.strip().lower() == HARMLESS.get(name):
        return
    row = kafka_properties().get((BROKER, name))
    if row is not None and row.is_default(text):
        return
    raise InvalidConfigError(
        f"{shown(name, text)}: Invalid value, {what} is not served here, and a broker that ignored this would be "
        "open to everyone who reaches it; leave the property out if that is meant"
    )


def shown(name: str, text: str) -> str:
    """Returns a property with its value for an error message, without the value of a secret."""
    return name if SECRET.search(name) else f"{name}={text}"
