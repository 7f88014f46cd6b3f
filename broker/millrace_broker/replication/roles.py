"""What LeaderAndIsr and StopReplica do to one partition of this broker, as tables without clock, disk or socket.

A whole request is looked at first:

| broker epoch of the request | controller epoch | answer |
|---|---|---|
| lower than this broker's: meant for a former registration (KIP-380) | any | STALE_BROKER_EPOCH |
| not lower, or -1 | lower than the highest that was seen: a former controller | STALE_CONTROLLER_EPOCH |
| not lower, or -1 | not lower | the request is done |

LeaderAndIsr, for each of its partitions:

| what this broker has | the request says | what follows |
|---|---|---|
| any | a name that no partition can have | INVALID_TOPIC_EXCEPTION |
| a log whose data directory is offline | any | KAFKA_STORAGE_ERROR |
| the id of another topic, and not a damaged one | any | INCONSISTENT_TOPIC_ID |
| a newer leader epoch, or the same one | any | STALE_CONTROLLER_EPOCH |
| an older leader epoch, or nothing | this broker is no replica | UNKNOWN_TOPIC_OR_PARTITION |
| an older leader epoch, or nothing | this broker leads | it leads |
| an older leader epoch, or nothing | another broker leads, or none | it follows |

StopReplica, for each of its partitions:

| what this broker has | leader epoch of the request | what follows |
|---|---|---|
| a log whose data directory is offline | any | KAFKA_STORAGE_ERROR |
| the log of a former topic of the name, and so no role | any | the log is left as it is |
| a log and no role, and ZooKeeper does not tell which topic has the name | any | UNKNOWN_SERVER_ERROR |
| no role in the partition | any | a log is deleted if that is asked for and there is one |
| an older leader epoch, or the same one | any | it stops |
| a newer leader epoch | -2, when the topic is deleted, or -1, of a controller before KIP-570 | it stops |
| a newer leader epoch | any other | FENCED_LEADER_EPOCH |

`ControllerFence` knows the newest controller, and refuses what a former one sends.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Self
from uuid import UUID

from millrace.errors import ErrorCode, StaleBrokerEpochError, StaleControllerEpochError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.controller_apis import EPOCH_DURING_DELETE, NO_BROKER_EPOCH
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.data_dirs.meta_properties import is_damaged_id
from millrace_broker.storage.filenames import is_partition_name


class Role(Enum):
    """The role of a broker that has a replica of a partition: to lead or to follow."""

    LEADER = "leader"
    FOLLOWER = "follower"


class PartitionState(NamedTuple):
    """One partition's entry in a LeaderAndIsr request. `topic_id` is None where the version has none."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()


class Leadership(NamedTuple):
    """A leader's part of a LeaderAndIsr request: the partition's epochs, all replicas, and those that are in sync.

    `adding` are those of the replicas that a reassignment adds.
    """

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()

    @classmethod
    def alone(cls, broker_id: int, leader_epoch: int = 0) -> Self:
        """Returns what LeaderAndIsr would tell the leader of a partition whose only replica this broker has."""
        return cls(leader_epoch, 0, (broker_id,), (broker_id,))


class StopState(NamedTuple):
    """One partition's entry in a StopReplica request."""

    topic_partition: TopicPartition
    leader_epoch: int
    deletes: bool


class Hosted(NamedTuple):
    """A partition as its broker knows it: the newest leader epoch, -1 if none, and the topic's id."""

    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: UUID | None = None
    is_offline: bool = False

    def is_of_another_topic(self, topic_id: UUID | None) -> bool:
        """Returns whether the partition is known to be that of a topic with another id; a damaged id says nothing."""
        if self.topic_id is None or topic_id is None:
            return False
        return self.topic_id != topic_id and not is_damaged_id(self.topic_id, topic_id)


def new_role(state: PartitionState, broker_id: int, hosted: Hosted) -> Role | ErrorCode:
    """Returns whether LeaderAndIsr makes the broker lead or follow a partition, or the error to answer for it."""
    if not is_partition_name(state.topic_partition):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if hosted.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if hosted.is_of_another_topic(state.topic_id):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if state.leader_epoch <= hosted.leader_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if broker_id not in state.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Role.LEADER if state.leader == broker_id else Role.FOLLOWER


def stop_refusal(state: StopState, hosted: Hosted) -> ErrorCode:
    """Returns the error to answer for the partition; NONE where StopReplica is to be carried out."""
    if hosted.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    is_unconditional = state.leader_epoch in (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)
    if not is_unconditional and state.leader_epoch < hosted.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


class ControllerFence:
    """Refuses requests of former controllers; `own_broker_epoch` returns this broker's epoch, -1 if unregistered."""

    def __init__(self, own_broker_epoch: Callable[[], int]) -> None:
        self._own_broker_epoch = own_broker_epoch
        self.controller_epoch = 0

    def check(self, controller_epoch: int, broker_epoch: int) -> None:
        """Raises StaleBrokerEpochError or StaleControllerEpochError for a request with an old epoch of either.

        A broker epoch above this broker's own passes: the controller may hear of a new registration first.
        """
        own_epoch = self._own_broker_epoch()
        if NO_BROKER_EPOCH < broker_epoch < own_epoch:
            raise StaleBrokerEpochError(f"a request for broker epoch {broker_epoch}; the broker has {own_epoch}")
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpochError(
                f"a request of controller epoch {controller_epoch}; epoch {self.controller_epoch} is known"
            )
        self.controller_epoch = controller_epoch
