"""The states of an adopted topic's partitions in ZooKeeper: they begin with what the logs say, not with epoch 0.

A creator of a topic leaves the states to the controller, which lets the first replica lead in epoch 0 with all replicas
in sync. Where the logs are there already, that would cut logs, and let old epochs pass for new ones. So an adopter
writes the states: the broker with the longest log leads, is alone in sync, in an epoch above those of all logs. The
controller takes over a state that it finds; the others follow, cut off what the leader lacks, and come into sync.
"""

from __future__ import annotations

from millrace.zk import codec, paths
from millrace.zk.operations import Check, Create, Operation
from millrace.zk.session import Node
from millrace_broker.cluster.metadata_image import TopicInfo


def adopted_states(topic: TopicInfo, controller_epoch: Node) -> list[Operation]:
    """Returns what writes the states below a topic's node, unless another broker becomes the controller meanwhile."""
    operations: list[Operation] = [Create(paths.partitions(topic.name))]
    for one in topic.partitions:
        state = codec.PartitionState(
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            isr=one.isr,
            controller_epoch=int(controller_epoch.data),
        )
        operations += [
            Create(paths.partition(topic.name, one.index)),
            Create(paths.partition_state(topic.name, one.index), codec.encode_partition_state(state)),
        ]
    return [*operations, Check(paths.CONTROLLER_EPOCH, controller_epoch.version)]
