"""What a mirror is told: its clusters, which topics, and how; by options, a file (TOML), or both.

    topics = ["orders.*"]
    deleted_topics = "keep"

    [target]
    bootstrap = "10.1.0.1:9092"
    client_config = "target.properties"

    [[sources]]
    name = "east"
    bootstrap = "10.2.0.1:9092"
    topics = ["clicks"]                  # in place of those above
    properties = { "security.protocol" = "SSL", "ssl.truststore.location" = "east.pem" }

An option wins over the file. Names of topics, groups and properties are regular expressions (of Python's `re`), which
match a name as a whole.

A side's credentials come from its own `client_config` (a file, or env:NAME) and `properties`. The environment's
(MILLRACE_SECURITY_PROTOCOL …) are the target's alone, since those of one cluster are rarely good for another.

Properties of topics go along, but for those in `settings_deny`. By default these are the ones that MirrorMaker 2
leaves to the target, where operators set them: throttles of replication, `min.insync.replicas` and
`unclean.leader.election.enable`; and those of tiered storage, which a target may not have. In a target that is copied
into, what says how brokers treat times of records is never set: the target would put its own times into records, or
refuse old ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from millrace.client import Cluster
from millrace.client.client_settings import client_settings
from millrace.client.producer import Producer
from millrace.security.client_config import ENV, read_client_security
from millrace.security.client_security import ClientSecurity
from millrace.security.renewed_security import RenewedSecurity
from millrace.zk.security import ZooKeeperSecurity

CLIENT_ID = "millrace-mirror"
KEPT_BY_TARGET = (
    "(leader|follower)\\.replication\\.throttled\\.replicas",
    "min\\.insync\\.replicas",
    "unclean\\.leader\\.election\\.enable",
    "remote\\..*",
    "local\\.retention\\..*",
)
LITERAL = re.compile(r"[A-Za-z0-9_-]+")  # a pattern that matches one name alone
GROUPS_OF_TOOLS = ("console-consumer-.*", "connect-.*", "millrace-mirror-.*", "__.*")


class Way(StrEnum):
    """How a topic is mirrored: batches at the same offsets, or records in transactions; AUTO as the target can."""

    AUTO = "auto"
    FOLLOW = "follow"
    COPY = "copy"


class NewTopics(StrEnum):
    """From where a topic is mirrored that wasn't before; NO: only topics that are there at the mirror's first start."""

    BEGINNING = "beginning"
    NOW = "now"
    NO = "no"


class DeletedTopics(StrEnum):
    """What becomes of a mirrored topic that is deleted at its source."""

    KEEP = "keep"
    DELETE = "delete"


class Accept(StrEnum):
    """The options by which a topic goes on where it would otherwise stop; loads have the same ones."""

    LOST_OFFSETS = "accept_lost_offsets"
    RECREATED_TOPIC = "accept_recreated_topic"
    TRUNCATED_LOG = "accept_truncated_log"

    @property
    def flag(self) -> str:
        """The option as the command line and the reasons of stopped topics spell it: `--accept-lost-offsets`."""
        return "--" + self.replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How a cluster is reached, the target if not a `Source`; its representation has no secret.

    Attributes:
        bootstrap: `HOST:PORT,…` of some brokers.
        client_config: The file of the client's security, or `env:NAME`.
        properties: Client properties, which win over that file: security, `client.id`, `request.timeout.ms`; and those
            that secure ZooKeeper.
        zookeeper: `HOST:PORT,…[/chroot]` of the cluster's ZooKeeper, for its users and its groups there.
    """

    bootstrap: str
    client_config: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    zookeeper: str | None = None

    def security(self, environment: Mapping[str, str] = os.environ) -> ClientSecurity:
        """Returns the security of connections to this cluster, which they read again; raises InvalidConfigError."""
        return RenewedSecurity(lambda: read_client_security(self.client_config, self.properties, environment))

    def cluster(self) -> Cluster:
        """Returns a connection to this cluster; each thread has its own."""
        told = client_settings({"broker_list": self.bootstrap, "client_id": CLIENT_ID, **self._of_clients()})
        timeout_s = told.request_timeout_ms / 1000
        return Cluster(told.broker_list, client_id=told.client_id, timeout_s=timeout_s, security=self.security())

    def producer(self, **properties: Any) -> Producer:
        """Returns a producer for this cluster, with these further properties."""
        told = {"broker_list": self.bootstrap, "client_id": CLIENT_ID, **self._of_clients(), **properties}
        return Producer(told, security=self.security())

    def zookeeper_security(self) -> ZooKeeperSecurity:
        """Returns the security of sessions with the cluster's ZooKeeper; raises InvalidConfigError."""
        return ZooKeeperSecurity.from_properties(self.properties)

    def _of_clients(self) -> dict[str, str]:
        known = ("client.id", "request.timeout.ms")
        return {one.replace(".", "_"): self.properties[one] for one in known if one in self.properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Side):
    """A source cluster: its name, and which of its topics and groups are mirrored."""

    name: str
    topics: tuple[str, ...]
    topics_exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = (".*",)
    groups_exclude: tuple[str, ...] = GROUPS_OF_TOOLS

    def security(self, environment: Mapping[str, str] = os.environ) -> ClientSecurity:
        """Returns the security of connections to this cluster by file and properties alone, which they read again."""
        own = {name: value for name, value in environment.items() if f"{ENV}{name}" == self.client_config}
        return RenewedSecurity(lambda: read_client_security(self.client_config, self.properties, own))

    def has_topic(self, topic: str) -> bool:
        """Returns whether a topic is among those to be mirrored, by its name."""
        return matches(self.topics, topic) and not matches(self.topics_exclude, topic)

    def named_topics(self) -> list[str]:
        """Returns the topics that are asked for by their whole names."""
        return [one for one in self.topics if LITERAL.fullmatch(one) and self.has_topic(one)]

    def has_group(self, group_id: str) -> bool:
        """Returns whether a group's offsets are to be mirrored, by its name."""
        return matches(self.groups, group_id) and not matches(self.groups_exclude, group_id)


def _option(default: Any, doc: str, *, minimum: int | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "minimum": minimum})


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """The clusters of a mirror, and how it treats their topics. The metadata of a field has its meaning (`doc`)."""

    target: Side
    sources: tuple[Source, ...]
    keep_names: bool = _option(False, "whether topics keep their names, in place of NAME.topic")
    way: Way = field(
        default=Way.AUTO,
        metadata={"doc": "to follow, which needs Millrace as the target, or to copy; auto: as the target can"},
    )
    new_topics: NewTopics = field(
        default=NewTopics.BEGINNING, metadata={"doc": "from where topics are mirrored that were not before"}
    )
    deleted_topics: DeletedTopics = field(
        default=DeletedTopics.KEEP, metadata={"doc": "what becomes of topics that the source has deleted"}
    )
    settings_allow: tuple[str, ...] = _option((".*",), "properties of topics that go along")
    settings_deny: tuple[str, ...] = _option(KEPT_BY_TARGET, "those that do not")
    replication_factor: int = _option(-1, "of topics that are created; -1: the target's default", minimum=-1)
    topics_interval_ms: int = _option(5_000, "after which topics and their properties are looked at again", minimum=1)
    access_interval_ms: int = _option(60_000, "the same for ACLs, quotas and users", minimum=1)
    groups_interval_ms: int = _option(1_000, "after which offsets of groups are translated again", minimum=1)
    acls: bool = _option(False, "whether access control lists of mirrored topics go along")
    quotas: bool = _option(False, "whether quotas of clients go along")
    users: bool = _option(False, "whether users who log in by SCRAM go along, from ZooKeeper to ZooKeeper")
    throttle_bytes_per_s: int = _option(0, "the most that an instance reads; 0: no limit", minimum=0)
    transaction_interval_ms: int = _option(100, "after which a transaction is committed", minimum=1)
    transaction_bytes: int = _option(16 << 20, "after which it is committed earlier", minimum=1)
    session_timeout_ms: int = _option(
        10_000, "how long an instance may be silent until others go on with its partitions", minimum=1
    )
    accept_lost_offsets: bool = _option(False, "go on where the source has deleted offsets that were not mirrored yet")
    accept_recreated_topic: bool = _option(False, "go on with a topic that was deleted and created again")
    accept_truncated_log: bool = _option(False, "go on where the source's log was cut below what is mirrored")

    @property
    def accepted(self) -> frozenset[Accept]:
        """What every topic may go on in spite of."""
        return frozenset(one for one in Accept if getattr(self, one))

    def goes_along(self, name: str) -> bool:
        """Returns whether a property of a topic is set at the target as it is at the source."""
        return matches(self.settings_allow, name) and not matches(self.settings_deny, name)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Returns whether one of the regular expressions matches the whole name."""
    return any(one.fullmatch(name) for one in map(_compiled, patterns))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
