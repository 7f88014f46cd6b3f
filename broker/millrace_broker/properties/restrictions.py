"""Refuses properties that restrict access or encrypt and are not obeyed: a value that asks for it stops the start.

A broker that ignored such a property would be open although its operator believes it closed. A value that restricts
nothing is accepted: Kafka's default, and the empty text. What is given for one listener, as
`listener.name.NAME.PROPERTY`, is judged as the property itself.
"""

from __future__ import annotations

import re

from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, kafka_properties
from millrace_broker.properties.listeners import SECURING, override
from millrace_broker.properties.sasl_config import RENEWALS

LISTENER_PROPERTIES = frozenset({
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "sasl.mechanism.inter.broker.protocol",
})  # fmt: skip
AUTHORIZER_PROPERTIES = frozenset({"authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"})
OBEYED = LISTENER_PROPERTIES | SECURING | AUTHORIZER_PROPERTIES
"""The properties that restrict access, or say where and how, and are obeyed."""

# What properties ask for, by the beginning of their names; the first entry that fits counts. An entry that ends with a
# dot stands for all names that begin with it.
RESTRICTIONS = {
    "authorizer.zookeeper.": "access control in another ZooKeeper",
    "principal.builder.class": "authentication",
    "sasl.": "this property of SASL",
    "ssl.": "this property of TLS",
    "security.providers": "another implementation of TLS",
    "zookeeper.ssl.crl.enable": "the check of ZooKeeper's certificate for revocation",
    "zookeeper.ssl.ocsp.enable": "the check of ZooKeeper's certificate for revocation",
    "password.encoder.": "encryption of passwords in ZooKeeper",
    "alter.config.policy.class.name": "a policy for configurations",
    "create.topic.policy.class.name": "a policy for topics",
}
BEGINNINGS = tuple(RESTRICTIONS)
OBEYED_BEGINNINGS = (
    "delegation.token.",
    "java.security.auth.login.config",
    "zookeeper.clientCnxnSocket",
    "zookeeper.set.acl",
    "zookeeper.ssl.",
)
"""The beginnings of names of other such properties."""
SECRET = re.compile(r"password$|secret|jaas|passphrase|\.key$")


def restriction(name: str) -> str | None:
    """Returns what a property asks for, as a noun phrase; None where it neither restricts nor encrypts."""
    own = override(name)
    base = name if own is None else own.name
    if base in OBEYED | RENEWALS if own is None else own.is_known:
        return None
    if base.startswith(BEGINNINGS):
        for beginning, what in RESTRICTIONS.items():
            if base.startswith(beginning) if beginning.endswith(".") else base == beginning:
                return what
    return None if own is None else "this property of one listener"


def restricts(name: str) -> bool:
    """Returns whether a property restricts or encrypts, obeyed or not: a misspelt name of one must not be ignored."""
    return name in OBEYED or name.startswith(OBEYED_BEGINNINGS) or restriction(name) is not None


def check_unrestricted(name: str, text: str) -> None:
    """Raises InvalidConfigError for a value that asks for what is not served; the message has no secret in it."""
    what = restriction(name)
    if what is None or not text.strip():
        return
    own = override(name)
    row = kafka_properties().get((BROKER, name if own is None else own.name))
    if row is not None and row.is_default(text):
        return
    raise InvalidConfigError(
        f"{shown(name, text)}: Invalid value, {what} is not served here, and a broker that ignored this would be "
        "open to everyone who reaches it; leave the property out if that is meant"
    )


def check_not_of_listeners(name: str, text: str) -> None:
    """Raises InvalidConfigError for a property of listeners, which is read at the start, from the file alone."""
    if name in LISTENER_PROPERTIES:
        raise InvalidConfigError(f"{name}={text}: it is read at the start; give it in the broker's file")


def shown(name: str, text: str) -> str:
    """Returns a property with its value for an error message, without the value of what is, or may be, a secret."""
    own = override(name)
    base = name if own is None else own.name
    is_unknown = base.startswith(("ssl.", "sasl.")) and (BROKER, base) not in kafka_properties()
    return name if is_unknown or SECRET.search(base) else f"{name}={text}"
