"""The interface of a metadata store, which keeps the cluster's metadata: in ZooKeeper, or in a local file.

Every method blocks and may be called from any thread. `on_change` is called on a thread of the store's choice, with
images in the order of their age; images may be left out, but never the newest.

`NamedCluster` says which cluster a broker makes where its metadata store is empty (`--cluster-id`):

| `--cluster-id` | the store's id | the folders' id | what follows |
|---|---|---|---|
| none | one | any | the store's; a folder of another cluster is refused when it is opened |
| none | none | none | a new id |
| none | none | one | InconsistentClusterIdError: the metadata is lost, and a new id would never fit the folders |
| X | none | any | X |
| X | X | any | X |
| X | another | any | InvalidConfigError |

So a broker that meets an empty store by mistake, as after the loss of ZooKeeper's data, writes nothing into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from millrace.errors import InconsistentClusterIdError, InvalidConfigError
from millrace.security.acls import Acl, ResourcePattern
from millrace.uuids import encode_id
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.security.tokens import DelegationToken
from millrace_broker.storage import TopicPartition

OnChange = Callable[[MetadataImage], None]


class ClusterOfFolder(NamedTuple):
    """A data directory, and the id of the cluster that its `meta.properties` names."""

    directory: str
    cluster_id: str


class NamedCluster(NamedTuple):
    """The id for a new cluster: `given` by `--cluster-id`, or None; `find` returns a data directory with one."""

    given: str | None = None
    find: Callable[[], ClusterOfFolder | None] = lambda: None

    def new_id(self, store: str) -> str:
        """Returns the id for the cluster that is made in `store`, named for errors, as it is empty.

        Raises InconsistentClusterIdError where a data directory belongs to a cluster and no id was given.
        """
        if self.given is not None:
            return self.given
        found = self.find()
        if found is not None:
            raise InconsistentClusterIdError(
                f"{found.directory}: the folder belongs to cluster.id {found.cluster_id}, and {store} has no cluster "
                f"yet; --cluster-id={found.cluster_id} makes that cluster there again"
            )
        return encode_id(uuid4())

    def check(self, found: str, store: str) -> str:
        """Returns `found`, the cluster id in a store. Raises InvalidConfigError where another one was given."""
        if self.given not in (None, found):
            raise InvalidConfigError(
                f"--cluster-id={self.given}: Invalid value, {store} has the cluster with id {found}; only a broker "
                "that makes a cluster in an empty one is given its id"
            )
        return found


UNNAMED = NamedCluster()


class Losses(NamedTuple):
    """What a broker may have lost since its last stop.

    Attributes:
        has_new_disk: A data directory is new, so that partitions may be gone.
        kept: The partitions that other data directories have, where one is new.
        has_lost_power: What was not synced may be gone.
    """

    has_new_disk: bool = False
    kept: frozenset[TopicPartition] = frozenset()
    has_lost_power: bool = False


class MetadataStore(Protocol):
    """Keeps topics, configurations and the cluster's id across restarts, and knows the live brokers."""

    def start(self, on_change: OnChange) -> None:
        """Connects, and makes the cluster's id if there is none; `on_change` is called with each new image.

        Raises ZooKeeperError or StorageError where that fails.
        """
        ...

    def new_broker_id(self, highest_told: int) -> int:
        """Returns a broker id that was never used, above `highest_told`, the highest that operators may give."""
        ...

    def note_losses(self, broker_id: int, losses: Losses) -> None:
        """Writes down, before a broker registers, which records it may have lost since its last stop."""
        ...

    def note_damage(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        """Replaces the list of those partitions of a broker whose logs are damaged."""
        ...

    def eligible_leaders(self, partition: TopicPartition) -> tuple[int, ...]:
        """Returns the replicas outside a partition's ISR that have every committed record."""
        ...

    def register_broker(self, broker: BrokerInfo) -> None:
        """Registers a live broker until `close`. Raises BrokerIdTakenError if another live one has its id."""
        ...

    def image(self) -> MetadataImage:
        """Returns the newest metadata image."""
        ...

    def trouble(self) -> str | None:
        """Returns a sentence on why this broker may not be registered now; None where it surely is."""
        ...

    def create_topic(self, topic: TopicInfo) -> None:
        """Adds a topic, completely or not at all.

        Raises TopicExistsError if its name is taken, TopicBeingDeletedError if it will be free soon.
        """
        ...

    def adopt_topic(self, topic: TopicInfo) -> None:
        """Adds a topic whose logs exist, with its leader epochs. Raises TopicExistsError or TopicBeingDeletedError."""
        ...

    def topic_id(self, name: str) -> UUID | None:
        """Returns the id of a topic, also of one that is being deleted; None if there is none.

        Raises ZooKeeperError where it can't be read.
        """
        ...

    def delete_topic(self, name: str) -> None:
        """Removes a topic. Raises UnknownTopicError if there is none."""
        ...

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Adds partitions to a topic, behind those that it has.

        Raises UnknownTopicError; raises InvalidPartitionsError where another broker has added some meanwhile.
        """
        ...

    def has_partition(self, name: str, index: int) -> bool:
        """Returns whether a topic has a partition and is not to be deleted, even if images lack it.

        Raises ZooKeeperError where it can't be read.
        """
        ...

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replaces a topic's own configuration. Raises UnknownTopicError if there is no such topic."""
        ...

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the live configuration of a broker, by its id as text, or of `ALL_BROKERS`."""
        ...

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replaces the configuration of a group."""
        ...

    def set_client_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces the properties of a user, a client or an address, by its key in `MetadataImage.client_configs`."""
        ...

    def change_acls(self, pattern: ResourcePattern, change: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Replaces the access control list of a resource by what `change` makes of the newest one.

        Raises ZooKeeperError or StorageError where that fails.
        """
        ...

    def set_delegation_token(self, token: DelegationToken) -> None:
        """Adds a delegation token, or replaces the one with its id."""
        ...

    def remove_delegation_token(self, token_id: str) -> None:
        """Removes a delegation token, if it is there."""
        ...

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Reserves and returns the next block of producer ids, at or above `at_least`, once that is durable."""
        ...

    def close(self) -> None:
        """Ends the broker's registration and disconnects; allowed before `start`, and more than once."""
        ...
