"""The cluster as one immutable value: its brokers, topics, leaders and configurations.

A broker works with one image at a time, and its metadata store hands it the next one after a change.

A cluster offers to its clients the features that all of its brokers support (KIP-584):

    group.version 1         clients may use the consumer group protocol (KIP-848)
    transaction.version 2   each transaction bumps the producer's epoch, and partitions join a transaction by being
                            written to (KIP-890)

Apache Kafka with ZooKeeper has neither. A broker says by its registration what it supports. While a broker of Apache
Kafka is registered, clients must not rely on what it lacks, as they use its partitions and coordinators too.

A client keeps the features of the highest epoch that any broker has told it. The epoch is the newest registration's
(its czxid): so a broker that joins takes features away from clients which connect from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from millrace.addresses import Endpoint, plaintext_endpoint
from millrace.security.acls import Acls
from millrace_broker.security.tokens import DelegationToken

ALL_BROKERS = "<default>"  # the entity whose properties hold for every broker


GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SUPPORTED: Mapping[str, int] = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
"""The features that this release supports, each with the newest level that it has."""


class OfferedFeatures(NamedTuple):
    """Names the features that clients may use, each with its level; clients believe the offer of the highest epoch."""

    levels: Mapping[str, int]
    epoch: int


ALL_FEATURES = OfferedFeatures(SUPPORTED, 0)
"""What a standalone broker offers."""


class SupportedFeatures(NamedTuple):
    """The newest level of each feature that a registered broker supports, and the broker's epoch."""

    levels: Mapping[str, int]
    broker_epoch: int


def offered_features(brokers: Collection[SupportedFeatures]) -> OfferedFeatures:
    """Returns the features that all these brokers support; without brokers, all of this release."""
    if not brokers:
        return ALL_FEATURES
    levels = {
        name: min(level, *(each.levels.get(name, 0) for each in brokers)) for name, level in sorted(SUPPORTED.items())
    }
    return OfferedFeatures(
        {name: level for name, level in levels.items() if level}, max(each.broker_epoch for each in brokers)
    )


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker, its rack, and the address of each of its listeners.

    `host` and `port` are those of its first endpoint, which is PLAINTEXT and the only one unless others are given.
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    endpoints: tuple[Endpoint, ...] = ()

    def __post_init__(self) -> None:
        if not self.endpoints:
            object.__setattr__(self, "endpoints", (plaintext_endpoint(self.host, self.port),))

    @classmethod
    def of(cls, number: int, endpoints: Iterable[Endpoint], rack: str | None) -> BrokerInfo:
        """Returns a broker with these endpoints, of which there is at least one."""
        first, *others = endpoints
        return cls(number, first.host, first.port, rack, (first, *others))

    def endpoint(self, listener: str) -> Endpoint | None:
        """Returns the broker's address on a listener; None where it has no listener of this name."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its leader (-1 for none), its replicas, and the in-sync replicas.

    `offline_replicas` are those whose broker or data directory is gone, as far as the controller knows.
    """

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id: a deleted topic and a later one of the same name have different ids."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: its name, id, partitions in the order of their index, and own properties."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole cluster at one moment. `controller_id` is -1 where the controller is not known.

    `broker_configs` are the live properties by broker id as text, and those of all brokers under `ALL_BROKERS`.
    `group_configs` are the properties that groups have for themselves, by group. `topic_configs` are those of topics,
    of which some may not be among `topics` yet, as their controller has not told of them. `client_configs` are those
    of users, clients and addresses (credentials, quotas) by their path below `/config`, such as
    `users/alice/clients/app`; names in it are encoded as Kafka encodes them (`millrace.zk.paths`). `acls` are
    the access control lists by resource; in a cluster, a broker without an authorizer does not read them.
    `delegation_tokens` are by id; a broker without a key for their secrets knows of none.
    """

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    acls: Acls = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    features: OfferedFeatures = ALL_FEATURES

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """Returns a partition's leader, replicas and ISR; None where the cluster has no such partition."""
        known = self.topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None


def offline_replicas(partition: PartitionInfo, image: MetadataImage) -> list[int]:
    """Returns the replicas of a partition whose broker is not alive, or whose data directory has failed."""
    return [one for one in partition.replicas if one not in image.brokers or one in partition.offline_replicas]


def reachable(image: MetadataImage, listener: str) -> dict[int, Endpoint]:
    """Returns, by broker id, the address on `listener` of each live broker that has this listener."""
    found = ((broker.id, broker.endpoint(listener)) for broker in image.brokers.values())
    return {number: endpoint for number, endpoint in found if endpoint is not None}


def racks_of(image: MetadataImage) -> dict[int, str | None]:
    """Returns the rack of each live broker, None for one without a rack."""
    return {broker.id: broker.rack for broker in image.brokers.values()}
