"""The features that a cluster offers to its clients (KIP-584): those that all of its brokers support.

    group.version 1         clients may use the consumer group protocol (KIP-848)
    transaction.version 2   each transaction bumps the producer's epoch, and partitions join a transaction by being
                            written to (KIP-890)

Apache Kafka with ZooKeeper has neither. A broker says by its registration what it supports. While a broker of Apache
Kafka is registered, clients must not rely on what it lacks, as they use its partitions and coordinators too.

A client keeps the features of the highest epoch that any broker has told it. The epoch is the newest registration's
(its czxid): so a broker that joins takes features away from clients which connect from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SUPPORTED: Mapping[str, int] = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
"""The features that this release supports, each with the newest level that it has."""


class OfferedFeatures(NamedTuple):
    """The level of each feature that is offered, and the epoch of the offer."""

    levels: Mapping[str, int]
    epoch: int


ALL_FEATURES = OfferedFeatures(SUPPORTED, 0)
"""What a standalone broker offers."""


class SupportedFeatures(NamedTuple):
    """What one broker has registered: the newest level of each feature, and its epoch."""

    levels: Mapping[str, int]
    broker_epoch: int


def offered_features(brokers: Collection[SupportedFeatures]) -> OfferedFeatures:
    """Returns what a cluster of these brokers offers; without a broker, what this one supports."""
    if not brokers:
        return ALL_FEATURES
    levels = {
        name: min(level, *(each.levels.get(name, 0) for each in brokers)) for name, level in sorted(SUPPORTED.items())
    }
    return OfferedFeatures(
        {name: level for name, level in levels.items() if level}, max(each.broker_epoch for each in brokers)
    )
