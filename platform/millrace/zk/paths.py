"""The paths of ZooKeeper's nodes (docs/formats/metadata.md); only this module knows the names.

/cluster/id                                   the cluster's id, created once
/brokers/ids/[id]                             ephemeral: a live broker
/brokers/seqid                                its version counts the ids that brokers were given
/brokers/new_disks/[id]                       a broker that has begun with a new data directory; not Kafka's
/brokers/power_losses/[id]                    a broker whose machine lost power, or may have; not Kafka's
/brokers/damage/[id]                          the damaged logs of a broker; not Kafka's
/brokers/seen_broker_epochs                   up to which registration the controller knows of losses; not Kafka's
/brokers/removals/[id]-[topic]-[n]            a broker is to delete a replica that was moved away; not Kafka's
/brokers/topics/[topic]                       topic id and assignment; the topic exists while this node does
/brokers/topics/[topic]/partitions/[n]/state  leader, leader epoch, in-sync replicas
/brokers/topics/[topic]/partitions/[n]/eligible  who may lead besides, and who must not; not Kafka's
/config/topics/[topic]                        the topic's own configuration
/config/brokers/[id]                          a broker's live configuration; that of all is named <default>
/config/groups/[group]                        a group's own configuration; Kafka keeps none in ZooKeeper
/config/users/[user]                          a user's credentials and quotas; names are encoded
/config/users/[user]/clients/[client]         the quotas of a user's client; the default user or client is <default>
/config/clients/[client]                      a client's quotas
/config/ips/[address]                         the quotas of an address
/config/changes/config_change_[sequence]      which configuration was changed
/kafka-acl/[Type]/[name]                      who may do what on a resource, or for `*` on all of a type
/kafka-acl-extended/prefixed/[Type]/[prefix]  the same on all resources whose names begin alike
/kafka-acl-changes/acl_changes_[sequence]     a resource whose entries were changed
/kafka-acl-extended-changes/acl_changes_[…]   a prefix whose entries were changed
/delegation_token/tokens/[id]                 a delegation token, without its secret
/delegation_token/token_changes/token_change_[sequence]  which token was changed or removed
/controller                                   ephemeral: the broker that is the controller
/controller_epoch                             how often a broker has become the controller
/admin/delete_topics/[topic]                  a topic that shall be deleted
/admin/preferred_replica_election             partitions whose first replica shall lead
/admin/reassign_partitions                    partitions that shall go to other brokers
/isr_change_notification/[change]             partitions whose leader has written the in-sync replicas itself
/log_dir_event_notification/[event]           a broker that has lost a data directory
/consumers/[group]/ids/[consumer]             ephemeral: a live member and what it subscribes
/consumers/[group]/owners/[topic]/[n]         ephemeral: the consumer thread that owns a partition
/consumers/[group]/offsets/[topic]/[n]        how far the group has come; a client from before 0.8.2 writes it as well
/latest_producer_id_block                     the producer ids that a broker has reserved last

The names of users and clients are encoded as Apache Kafka does it: by Java's URLEncoder, with %20 for its `+` and %2A
for `*` (Sanitizer). Addresses stay as they are.

    bytes of UTF-8    A-Z a-z 0-9 . _ -    themselves        all others    %XX, in upper case
    the default of a level                 <default>, not encoded
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from millrace.security.acls import PatternType, ResourcePattern, ResourceType

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
NEW_DISKS = "/brokers/new_disks"
POWER_LOSSES = "/brokers/power_losses"
DAMAGE = "/brokers/damage"
REMOVALS = "/brokers/removals"
REMOVAL = re.compile(r"(\d+)-(.+)-(\d+)")
SEEN_BROKER_EPOCHS = "/brokers/seen_broker_epochs"
TOPICS = "/brokers/topics"
CONFIGS = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_CONFIGS = ("/config/users", "/config/clients", "/config/ips")
CONFIG_CHANGES = "/config/changes"
DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105
DELEGATION_TOKEN_NODES = (DELEGATION_TOKENS, TOKEN_CHANGES)
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
# The paths of notifications, to which ZooKeeper appends a sequence.
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
TOKEN_CHANGE = f"{TOKEN_CHANGES}/token_change_"
LOG_DIR_EVENT = f"{LOG_DIR_EVENTS}/log_dir_event_"
CONSUMERS = "/consumers"
PRODUCER_IDS = "/latest_producer_id_block"
ACLS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
ACL_CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
ACL_FOLDERS = {
    f"{folder}/{resource_type.pascal}": (resource_type, pattern_type)
    for pattern_type, folder in ACLS.items()
    for resource_type in ResourceType
    if resource_type > ResourceType.ANY
}
PERSISTENT = (
    *("/cluster", BROKER_IDS, TOPICS, TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, *CLIENT_CONFIGS),
    *(CONFIG_CHANGES, CONSUMERS, DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS, DAMAGE, REMOVALS),
)


def is_name(text: str) -> bool:
    """Returns whether a text can be the name of a node, as one element of a path."""
    return text not in {"", ".", ".."} and "/" not in text


def parent(path: str) -> str:
    """Returns the path of a node's parent."""
    return path.rpartition("/")[0]


def is_of_clients(path: str) -> bool:
    """Returns whether a node is part of the configuration (quotas, credentials) of users, clients or IP addresses."""
    return path.startswith(CLIENT_CONFIGS)


def is_of_acls(path: str) -> bool:
    """Returns whether a node is part of the access control lists, or tells of their changes."""
    return path.startswith("/kafka-acl")


def acls(pattern: ResourcePattern) -> str:
    """Returns the path of the node with a resource's access control entries."""
    return f"{ACLS[pattern.pattern_type]}/{pattern.resource_type.pascal}/{pattern.name}"


def acl_change(pattern_type: PatternType) -> str:
    """Returns the path for a new node that tells of changed ACLs; ZooKeeper appends a sequence number."""
    return f"{ACL_CHANGES[pattern_type]}/acl_changes_"


def broker(broker_id: int) -> str:
    """Returns the path of the node that registers a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def new_disks(broker_id: int) -> str:
    """Returns the path of the node by which a broker tells the controller that it has an empty new data directory."""
    return f"{NEW_DISKS}/{broker_id}"


def power_losses(broker_id: int) -> str:
    """Returns the path of the node by which a broker says that its machine has lost power while it ran."""
    return f"{POWER_LOSSES}/{broker_id}"


def damage(broker_id: int) -> str:
    """Returns the path of the node by which a broker names the partitions whose logs are damaged."""
    return f"{DAMAGE}/{broker_id}"


def removal(broker_id: int, topic: str, partition: int) -> str:
    """Returns the path of the node that stands until a broker has deleted a replica that was moved away."""
    return f"{REMOVALS}/{broker_id}-{topic}-{partition}"


def parse_removal(name: str) -> tuple[int, str, int] | None:
    """Returns the broker, the topic and the partition in the name of such a node; None for another name."""
    found = REMOVAL.fullmatch(name)
    return None if found is None else (int(found[1]), found[2], int(found[3]))


def topic(name: str) -> str:
    """Returns the path of the node with a topic's replica assignment."""
    return f"{TOPICS}/{name}"


def topic_config(name: str) -> str:
    """Returns the path of the node with a topic's configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(entity: str) -> str:
    """Returns the path of the dynamic configuration of a broker (`entity` is its id) or all brokers (`<default>`)."""
    return f"{BROKER_CONFIGS}/{entity}"


def group_config(group_id: str) -> str:
    """Returns the path of a group's own configuration."""
    return f"{GROUP_CONFIGS}/{group_id}"


def delegation_token(token_id: str) -> str:
    """Returns the path of the node with a delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def delete_topic(name: str) -> str:
    """Returns the path of the node that requests the deletion of a topic."""
    return f"{DELETE_TOPICS}/{name}"


def partitions(name: str) -> str:
    """Returns the path of the parent node of a topic's partitions."""
    return f"{topic(name)}/partitions"


def partition(name: str, index: int) -> str:
    """Returns the path of a partition's node, the parent of its state."""
    return f"{partitions(name)}/{index}"


def partition_state(name: str, index: int) -> str:
    """Returns the path of the node with a partition's leader and in-sync replicas."""
    return f"{partition(name, index)}/state"


def eligible(name: str, index: int) -> str:
    """Returns the path of the node that says who may lead a partition besides its in-sync replicas."""
    return f"{partition(name, index)}/eligible"


def consumer_ids(group_id: str) -> str:
    """Returns the path of the parent node of a consumer group's live members."""
    return f"{CONSUMERS}/{group_id}/ids"


def consumer_id(group_id: str, member: str) -> str:
    """Returns the path of the node that registers a consumer group's member."""
    return f"{consumer_ids(group_id)}/{member}"


def owners(group_id: str, topic_name: str = "") -> str:
    """Returns the path of the parent node of a topic's partition owners; without a topic, of the whole group's."""
    return f"{CONSUMERS}/{group_id}/owners/{topic_name}".rstrip("/")


def owner(group_id: str, topic_name: str, index: int) -> str:
    """Returns the path of the node that names the owner of a partition in a consumer group."""
    return f"{owners(group_id, topic_name)}/{index}"


def consumer_offsets(group_id: str, topic_name: str = "") -> str:
    """Returns the path of the parent node of a topic's committed offsets; without a topic, of the whole group's."""
    return f"{CONSUMERS}/{group_id}/offsets/{topic_name}".rstrip("/")


def consumer_offset(group_id: str, topic_name: str, index: int) -> str:
    """Returns the path of the node with a group's committed offset of a partition."""
    return f"{consumer_offsets(group_id, topic_name)}/{index}"


def topic_of(path: str) -> str | None:
    """Returns the topic to whose assignment, partitions or configuration a node belongs; None for any other path."""
    for parent in (TOPICS, TOPIC_CONFIGS):
        if path.startswith(parent + "/"):
            return path.removeprefix(parent + "/").partition("/")[0]
    return None


DEFAULT = "<default>"


def encode_name(name: str | None) -> str:
    """Returns the node name for a user or client id, percent-encoded; for None `<default>`."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


def decode_name(node: str) -> str | None:
    """Returns the user or client id that a node name stands for; None for `<default>`."""
    return None if node == DEFAULT else unquote(node)
