"""Refuses properties that restrict access or encrypt and are not obeyed: a value that asks for it stops the start.

A broker that ignored such a property would be open although its operator believes it closed. A value that restricts
nothing is accepted: Kafka's default, and the empty text. What is given for one listener, as
`listener.name.NAME.PROPERTY`, is judged as the property itself.

Other properties that Kafka knows and this broker does not obey are checked, stored and described. So a file or a tool
that is written for Kafka finds the properties that it names, and a value that Kafka refuses is refused here too. The
description of each says why it has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from millrace.config import ConfigKey
from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, kafka_properties, key_without_effect
from millrace_broker.properties.listeners import SECURING, override
from millrace_broker.properties.security_config import RENEWALS

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
# Why a property has no effect, by the beginning of its name; the longest beginning that fits counts.
REASONS = {
    "": "Kafka's own way of working, which has no counterpart here",
    "alter.log.dirs.replication.quota.": "the throttle of moves between folders has no windows",
    "background.threads": "an event loop takes the place of thread pools",
    "broker.heartbeat.": "there is no KRaft controller",
    "broker.session.": "there is no KRaft controller",
    "client.quota.": "quotas are found as Kafka's own callback finds them",
    "controller.": "there is no KRaft controller",
    "early.start.": "there is no KRaft controller",
    "eligible.leader.": "there is no KRaft controller",
    "group.share.": "share groups are not served",
    "group.streams.": "streams groups are not served",
    "initial.broker.": "there is no KRaft controller",
    "inter.broker.": "brokers speak to one another as those of Apache Kafka 3.9",
    "internal.metadata.": "there is no KRaft controller",
    "kafka.metrics.": "metrics are served at /metrics",
    "local.": "there is no tiered storage",
    "log.local.": "there is no tiered storage",
    "metadata.": "there is no KRaft controller",
    "metric": "metrics are served at /metrics",
    "num.io.": "an event loop takes the place of thread pools",
    "num.network.": "an event loop takes the place of thread pools",
    "num.replica.alter.": "one log is moved between folders at a time",
    "process.roles": "there is no KRaft controller",
    "remote.": "there is no tiered storage",
    "replica.socket.": "the operating system sizes the buffers of sockets",
    "sasl.kerberos.": "there is no login by Kerberos",
    "sasl.login.refresh.": "a login asks for a newer token when a connection needs one",
    "share.": "share groups are not served",
    "streams.": "streams groups are not served",
    "telemetry.": "clients send no metrics",
    "unclean.": "unclean elections follow a failure at once",
}
LONGEST_FIRST = sorted(REASONS.items(), key=lambda one: -len(one[0]))


def restriction(name: str) -> str | None:
    """Returns a noun phrase for the protection that a property asks for and this broker lacks; else None."""
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
    """Returns whether a property restricts access or encrypts, so that a misspelt name of it must be an error."""
    return name in OBEYED or name.startswith(OBEYED_BEGINNINGS) or restriction(name) is not None


def check_unrestricted(name: str, text: str) -> None:
    """Raises InvalidConfigError for a value that asks for protection that this broker lacks; it shows no secret."""
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
    """Raises InvalidConfigError for a property that defines listeners, as the broker reads these at its start only."""
    if name in LISTENER_PROPERTIES:
        raise InvalidConfigError(f"{name}={text}: it is read at the start; give it in the broker's file")


def shown(name: str, text: str) -> str:
    """Returns `NAME=VALUE` for an error message; the name alone where the value is, or may be, a secret."""
    own = override(name)
    base = name if own is None else own.name
    is_unknown = base.startswith(("ssl.", "sasl.")) and (BROKER, base) not in kafka_properties()
    return name if is_unknown or SECRET.search(base) else f"{name}={text}"


def keys_without_effect(scope: str, obeyed: Collection[str]) -> tuple[ConfigKey, ...]:
    """Returns the declarations of a scope's Kafka properties that are not in `obeyed`, and so have no effect."""
    return tuple(
        key_without_effect(row, f"Without effect here: {reason(name)}.")
        for (area, name), row in kafka_properties().items()
        if area == scope and name not in obeyed
    )


def reason(name: str) -> str:
    """Returns why a property has no effect in Millrace, as the end of a sentence."""
    restricted = restriction(name)
    if restricted is not None:
        return f"{restricted} is not served, and a value that asks for it stops the start"
    return next(why for beginning, why in LONGEST_FIRST if name.startswith(beginning))
