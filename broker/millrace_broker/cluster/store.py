"""The interface of a metadata store, which keeps the cluster's metadata: in ZooKeeper, or in a local file.

Every method blocks and may be called from any thread. `on_change` is called on a thread of the store's choice, with
views in the order of their age; views may be left out, but never the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.storage import TopicPartition

OnChange = Callable[[ClusterView], None]


class MetadataStore(Protocol):
    """Keeps topics, configurations and the cluster's id across restarts, and knows the live brokers."""

    def start(self, on_change: OnChange) -> None:
        """Connects, and makes the cluster's id if there is none. ZooKeeperError or StorageError where that fails."""
        ...

    def new_broker_id(self, highest_told: int) -> int:
        """Returns an id that no broker has had, above `highest_told`, the highest that operators give."""
        ...

    def register_broker(self, broker: BrokerInfo) -> None:
        """Announces a live broker until `close`. BrokerIdTakenError if another live one has its id."""
        ...

    def view(self) -> ClusterView:
        """Returns the newest view."""
        ...

    def trouble(self) -> str | None:
        """Returns a sentence that says why the broker may not be registered at the moment; None where it surely is."""
        ...

    def create_topic(self, topic: TopicInfo) -> None:
        """Adds a topic, whole or not at all. TopicExistsError if its name is taken."""
        ...

    def delete_topic(self, name: str) -> None:
        """Removes a topic. UnknownTopicError if there is none."""
        ...

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Adds the partitions that come next.

        UnknownTopicError; InvalidPartitionsError where another broker has added some meanwhile.
        """
        ...

    def raise_leader_epochs(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Gives partitions newer leader epochs, and returns once they are durable.

        No epoch is lowered, and partitions that are gone are left out. A crash may leave some of them raised.
        ZooKeeperError; StorageError where they hold in this process but are not stored yet.
        """
        ...

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replaces a topic's own configuration. UnknownTopicError if there is no such topic."""
        ...

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the live configuration of a broker, by its id as text, or of `ALL_BROKERS`."""
        ...

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replaces the configuration of a group."""
        ...

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Reserves and returns the next block of producer ids, at or above `at_least`, once that is durable."""
        ...

    def close(self) -> None:
        """Gives up the registration and disconnects; allowed before `start`, and more than once."""
        ...
