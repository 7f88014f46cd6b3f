"""Where things lie in ZooKeeper (spec F); this module alone knows the names.

/cluster/id                                   the cluster's id, created once
/brokers/ids/[id]                             ephemeral: a live broker
/brokers/topics/[topic]                       topic id and assignment; the topic exists while this node does
/brokers/topics/[topic]/partitions/[n]/state  leader, leader epoch, in-sync replicas
/config/topics/[topic]                        the topic's own configuration
/latest_producer_id_block                     the producer ids that a broker has reserved last
"""

from __future__ import annotations

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
PRODUCER_IDS = "/latest_producer_id_block"
PERSISTENT = ("/cluster", BROKER_IDS, TOPICS, TOPIC_CONFIGS)


def broker(broker_id: int) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{name}"


def topic_config(name: str) -> str:
    """A topic's configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{topic(name)}/partitions"


def partition(name: str, index: int) -> str:
    """The parent of a partition's state."""
    return f"{partitions(name)}/{index}"


def partition_state(name: str, index: int) -> str:
    """A partition's state."""
    return f"{partition(name, index)}/state"


def topic_of(path: str) -> str | None:
    """The topic that a path is about; None for any other path."""
    for parent in (TOPICS, TOPIC_CONFIGS):
        if path.startswith(parent + "/"):
            return path.removeprefix(parent + "/").partition("/")[0]
    return None
