"""The properties that Kafka knows and this broker does not obey: they are checked, stored and described.

So a file or a tool that is written for Kafka finds the properties that it names, and a value that Kafka refuses is
refused here too. The description of each says why it has no effect.
"""

from __future__ import annotations

from collections.abc import Collection

from millrace.config import ConfigKey
from millrace_broker.properties.kafka_properties import kafka_properties, key_without_effect
from millrace_broker.properties.restrictions import restriction

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


def keys_without_effect(scope: str, obeyed: Collection[str]) -> tuple[ConfigKey, ...]:
    """Returns the properties of a scope that are not among those that are obeyed."""
    return tuple(
        key_without_effect(row, f"Without effect here: {reason(name)}.")
        for (area, name), row in kafka_properties().items()
        if area == scope and name not in obeyed
    )


def reason(name: str) -> str:
    """Returns why a property has no effect, as the end of a sentence."""
    restricted = restriction(name)
    if restricted is not None:
        return f"{restricted} is not served, and a value that asks for it stops the start"
    return next(why for beginning, why in LONGEST_FIRST if name.startswith(beginning))
