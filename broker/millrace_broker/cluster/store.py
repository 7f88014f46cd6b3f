"""Where cluster metadata lives: the interface of the ZooKeeper store and of the local one.

Every method blocks and may be called from any thread. `on_change` is called on a thread of the store's
choosing, with views in the order of their age; views may be skipped, the newest never is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.storage import TopicPartition

OnChange = Callable[[ClusterView], None]


class MetadataStore(Protocol):
    """Topics, brokers and the cluster's id, kept across restarts."""

    def start(self, on_change: OnChange) -> None:
        """Connect, and make the cluster's id if there is none. ZooKeeperError or StorageError where that fails."""
        ...

    def new_broker_id(self, highest_told: int) -> int:
        """An id that no broker has had, above those that operators give."""
        ...

    def register_broker(self, broker: BrokerInfo) -> None:
        """Announce a live broker until `close`. BrokerIdTakenError if another live one has its id."""
        ...

    def view(self) -> ClusterView:
        """The newest view."""
        ...

    def trouble(self) -> str | None:
        """Why this broker is not, for now, a sure member of the cluster, as a sentence; None where it is."""
        ...

    def create_topic(self, topic: TopicInfo) -> None:
        """Add a topic, whole or not at all. TopicExistsError if its name is taken."""
        ...

    def delete_topic(self, name: str) -> None:
        """Remove a topic. UnknownTopicError if there is none."""
        ...

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Add the partitions that come next. UnknownTopicError; InvalidPartitionsError where others were faster."""
        ...

    def raise_leader_epochs(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Give partitions newer leader epochs, durable before it returns; none goes back, and what is gone is left out.

        A crash may leave some of them raised. Raises ZooKeeperError, or StorageError where they count in this process
        and are not stored yet.
        """
        ...

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace a topic's own configuration. UnknownTopicError if there is no such topic."""
        ...

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replace the live configuration of a broker, by its id as text, or of `ALL_BROKERS`."""
        ...

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replace the configuration of a group."""
        ...

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Take the next block of producer ids, at or above `at_least`; durable before it returns."""
        ...

    def close(self) -> None:
        """Give up the registration and let go; allowed before `start` and twice."""
        ...
