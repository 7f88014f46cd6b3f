"""What each API asks for, as rows: a request, and the rights that Kafka wants for it.

    rights    (type of the resource, name, operation), the most general first; None: only tried by who may do nothing
    fields    of the request, by Kafka's names; those that a version lacks are left out

Rows that would change what others look at name what does not exist.
"""

from typing import Any, NamedTuple
from uuid import UUID

from differential.session import record

from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, encode_batch

TOPIC, OTHER, GROUP, TXN = "orders", "missing", "readers", "writer"
BROKER_CONFIG_KIND = 4
CLUSTER = ("Cluster", "kafka-cluster")
BROKER = (*CLUSTER, "ClusterAction")
NO_ID, UNKNOWN_ID = UUID(int=0), UUID(int=7)
ID_OF_TOPIC = UUID(int=99)  # stands for the id that the broker has given to the topic
PRODUCER = {"producerId": 1, "producerEpoch": 0}
OFFSETS = [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "committedOffset": 0}]}]


class Row(NamedTuple):
    """One request."""

    api: str
    fields: Any
    rights: Any
    first: int = 0
    last: int = 99


def topic(*operations, name=TOPIC):
    return [("Topic", name, one) for one in operations]


def group(operation):
    return [("Group", GROUP, operation)]


def txn(operation):
    return [("TransactionalId", TXN, operation)]


def cluster(operation):
    return [(*CLUSTER, operation)]


def partitions(**fields):
    return [{"name": TOPIC, "partitions": [{"partitionIndex": 0, **fields}]}]


def produce(**fields):
    data = [{"name": TOPIC, "partitionData": [{"index": 0, "records": encode_batch([record(0)])}]}]
    return {"acks": 1, "timeoutMs": 60_000, "topicData": data, **fields}


def produce_in_transaction():
    records = encode_batch([record(0)], producer=BatchProducer(1, 0, 0), flags=TRANSACTIONAL_FLAG)
    data = [{"name": TOPIC, "partitionData": [{"index": 0, "records": records}]}]
    return produce(transactionalId=TXN, acks=-1, topicData=data)


def with_id(value, topic_id):
    """The fields of a row, with the topic's own id in them."""
    if isinstance(value, dict):
        return {name: with_id(one, topic_id) for name, one in value.items()}
    if isinstance(value, list):
        return [with_id(one, topic_id) for one in value]
    return topic_id if value == ID_OF_TOPIC else value


ROWS = [
    Row("Produce", produce(), topic("Write"), first=3),
    Row("Produce", produce(), None, last=2),
    Row("Produce", produce_in_transaction(), [*txn("Write"), *topic("Write")], first=3),
    Row("Fetch", {"replicaId": -1, "maxBytes": 1000,
                  "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "partitionMaxBytes": 100}]}]},
        topic("Read"), last=12),
    Row("Fetch", {"replicaId": 7, "maxBytes": 1000,
                  "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "partitionMaxBytes": 100}]}]},
        None, last=12),
    Row("Fetch", {"maxBytes": 1000, "topics": [
        {"topicId": ID_OF_TOPIC, "partitions": [{"partition": 0, "partitionMaxBytes": 100}]}]}, topic("Read"), 13),
    Row("Fetch", {"maxBytes": 1000, "topics": [
        {"topicId": UNKNOWN_ID, "partitions": [{"partition": 0, "partitionMaxBytes": 100}]}]}, None, 13),
    Row("ListOffsets", {"replicaId": -1, "topics": partitions(timestamp=-1)}, topic("Describe"), first=1),
    Row("ListOffsets", {"replicaId": -1, "topics": partitions(timestamp=-1, maxNumOffsets=1)}, topic("Read"), last=0),
    Row("Metadata", {"topics": [{"name": TOPIC}]}, topic("Describe")),
    Row("Metadata", {"topics": [{"name": OTHER}], "allowAutoTopicCreation": False}, topic("Describe", name=OTHER), 4),
    Row("Metadata", {"topics": [{"name": OTHER}]}, None),
    Row("Metadata", {"topics": None}, topic("Read"), first=1),
    Row("Metadata", {"topics": [{"topicId": ID_OF_TOPIC, "name": None}]}, topic("Describe"), first=12),
    Row("Metadata", {"topics": [{"topicId": UNKNOWN_ID, "name": None}]}, topic("Describe"), first=12),
    Row("Metadata", {"topics": [{"name": TOPIC}], "includeTopicAuthorizedOperations": True,
                     "includeClusterAuthorizedOperations": True}, [*cluster("Describe"), *topic("Read")], 8, 10),
    Row("LeaderAndIsr", {"controllerId": 1, "controllerEpoch": 1}, None),
    Row("StopReplica", {"controllerId": 1, "controllerEpoch": 1}, None),
    Row("UpdateMetadata", {"controllerId": 1, "controllerEpoch": 1}, None),
    Row("ControlledShutdown", {"brokerId": 7}, None, first=1),
    Row("OffsetCommit", {"groupId": GROUP, "topics": OFFSETS}, [*group("Read"), *topic("Read")]),
    Row("OffsetFetch", {"groupId": GROUP, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]},
        [*group("Describe"), *topic("Describe")], first=2, last=7),
    Row("OffsetFetch", {"groupId": GROUP, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]},
        [*group("Describe"), *topic("Describe")], last=0),  # whoever may not, is told nothing by Kafka in version 1
    Row("OffsetFetch", {"groups": [{"groupId": GROUP, "topics": None}]},
        [*group("Describe"), *topic("Describe")], first=8),
    Row("OffsetFetch", {"groups": [{"groupId": GROUP, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}]},
        [*group("Describe"), *topic("Describe")], first=8),
    Row("FindCoordinator", {"key": GROUP}, group("Describe"), last=3),
    Row("FindCoordinator", {"coordinatorKeys": [GROUP]}, group("Describe"), first=4),
    Row("FindCoordinator", {"keyType": 1, "coordinatorKeys": [TXN]}, txn("Describe"), first=4),
    Row("JoinGroup", {"groupId": GROUP, "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "memberId": "nobody",
                      "protocolType": "consumer", "protocols": []}, group("Read")),
    Row("Heartbeat", {"groupId": GROUP, "memberId": "nobody"}, group("Read")),
    Row("LeaveGroup", {"groupId": GROUP, "memberId": "nobody"}, group("Read"), last=2),
    Row("LeaveGroup", {"groupId": GROUP, "members": [{"memberId": "nobody"}]}, group("Read"), first=3),
    Row("SyncGroup", {"groupId": GROUP, "memberId": "nobody", "protocolType": "consumer", "protocolName": "range"},
        group("Read")),
    Row("DescribeGroups", {"groups": [GROUP]}, group("Describe")),
    Row("DescribeGroups", {"groups": [GROUP], "includeAuthorizedOperations": True}, group("Delete"), first=3),
    Row("ListGroups", {}, group("Describe")),
    Row("ListGroups", {}, cluster("Describe")),
    Row("CreateTopics", {"topics": [{"name": "new topic", "numPartitions": 1, "replicationFactor": 1}]},
        topic("Create", "DescribeConfigs", name="new topic")),
    Row("CreateTopics", {"topics": [{"name": "new", "numPartitions": 1, "replicationFactor": 1}],
                         "validateOnly": True}, [*cluster("Create"), *topic("DescribeConfigs", name="new")], first=5),
    Row("DeleteTopics", {"topicNames": [OTHER]}, topic("Delete", name=OTHER), last=5),
    Row("DeleteTopics", {"topics": [{"name": OTHER, "topicId": NO_ID}]}, topic("Delete", name=OTHER), first=6),
    Row("DeleteTopics", {"topicNames": [TOPIC]}, None, last=5),
    Row("DeleteTopics", {"topics": [{"name": None, "topicId": ID_OF_TOPIC}]}, None, first=6),
    Row("DeleteTopics", {"topics": [{"name": None, "topicId": UNKNOWN_ID}]}, topic("Delete"), first=6),
    Row("DeleteRecords", {"topics": partitions(offset=0), "timeoutMs": 60_000}, topic("Delete")),
    Row("InitProducerId", {"transactionalId": None, "transactionTimeoutMs": 1000}, topic("Write")),
    Row("InitProducerId", {"transactionalId": None, "transactionTimeoutMs": 1000}, cluster("IdempotentWrite")),
    Row("InitProducerId", {"transactionalId": TXN, "transactionTimeoutMs": 1000}, txn("Write")),
    Row("OffsetForLeaderEpoch", {"replicaId": -1, "topics": [
        {"topic": TOPIC, "partitions": [{"partition": 0, "leaderEpoch": 0}]}]}, topic("Describe")),
    Row("AddPartitionsToTxn", {"v3AndBelowTransactionalId": TXN, "v3AndBelowProducerId": 1,
                               "v3AndBelowProducerEpoch": 0, "v3AndBelowTopics": [{"name": TOPIC, "partitions": [0]}]},
        [*txn("Write"), *topic("Write")], last=3),
    Row("AddPartitionsToTxn", {"transactions": [{"transactionalId": TXN, **PRODUCER, "verifyOnly": True,
                                                 "topics": [{"name": TOPIC, "partitions": [0]}]}]}, None, first=4),
    Row("AddOffsetsToTxn", {"transactionalId": TXN, **PRODUCER, "groupId": GROUP}, [*txn("Write"), *group("Read")]),
    Row("EndTxn", {"transactionalId": TXN, **PRODUCER, "committed": True}, txn("Write")),
    Row("WriteTxnMarkers", {"markers": [{"producerId": 1, "producerEpoch": 0, "transactionResult": False,
                                         "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}]}, None),
    Row("TxnOffsetCommit", {"transactionalId": TXN, "groupId": GROUP, **PRODUCER, "topics": OFFSETS},
        [*txn("Write"), *group("Read")]),
    Row("DescribeAcls", {"resourceTypeFilter": 1, "patternTypeFilter": 3, "operation": 1, "permissionType": 2},
        cluster("Describe")),
    Row("CreateAcls", {"creations": [{"resourceType": 4, "resourceName": "no", "principal": "User:x", "host": "*",
                                      "operation": 3, "permissionType": 3}]}, cluster("Alter")),
    Row("DeleteAcls", {"filters": [{"resourceTypeFilter": 2, "resourceNameFilter": OTHER, "operation": 1,
                                    "permissionType": 1}]}, cluster("Alter")),
    Row("DescribeConfigs", {"resources": [{"resourceType": 2, "resourceName": TOPIC,
                                           "configurationKeys": ["retention.ms"]}]}, topic("DescribeConfigs")),
    Row("DescribeConfigs", {"resources": [{"resourceType": 4, "resourceName": "", "configurationKeys": None}]},
        cluster("AlterConfigs")),
    Row("AlterConfigs", {"resources": [{"resourceType": 2, "resourceName": TOPIC, "configs": []}],
                         "validateOnly": True}, topic("AlterConfigs")),
    Row("AlterConfigs", {"resources": [{"resourceType": 4, "resourceName": "", "configs": []}], "validateOnly": True},
        cluster("AlterConfigs")),
    Row("AlterReplicaLogDirs", {"dirs": [{"path": "/no", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        cluster("Alter")),
    Row("DescribeLogDirs", {"topics": []}, cluster("Describe")),
    Row("CreatePartitions", {"topics": [{"name": OTHER, "count": 2, "assignments": None}], "timeoutMs": 60_000},
        topic("Alter", name=OTHER)),
    Row("DeleteGroups", {"groupsNames": [OTHER]}, [("Group", OTHER, "Delete")]),
    Row("ElectLeaders", {"topicPartitions": [{"topic": TOPIC, "partitions": [0]}], "timeoutMs": 60_000},
        cluster("Alter")),
    Row("IncrementalAlterConfigs", {"resources": [{"resourceType": 2, "resourceName": TOPIC, "configs": []}],
                                    "validateOnly": True}, topic("AlterConfigs")),
    Row("IncrementalAlterConfigs", {"resources": [{"resourceType": 8, "resourceName": "1", "configs": []}],
                                    "validateOnly": True}, cluster("AlterConfigs")),
    Row("DescribeConfigs", {"resources": [{"resourceType": 8, "resourceName": "1", "configurationKeys": []}]}, None),
    Row("AlterPartitionReassignments", {"topics": [{"name": TOPIC, "partitions": [
        {"partitionIndex": 0, "replicas": [99]}]}]}, cluster("Alter")),
    Row("ListPartitionReassignments", {"topics": None}, cluster("Describe")),
    Row("OffsetDelete", {"groupId": OTHER, "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0}]}]},
        [("Group", OTHER, "Delete"), *topic("Read")]),
    Row("DescribeClientQuotas", {"components": []}, cluster("DescribeConfigs")),
    Row("AlterClientQuotas", {"entries": [{"entity": [{"entityType": "user", "entityName": "x"}],
                                           "ops": [{"key": "producer_byte_rate", "value": 5.0}]}],
                              "validateOnly": True}, cluster("AlterConfigs")),
    Row("AlterUserScramCredentials", {"deletions": [{"name": "nobody", "mechanism": 1}]}, cluster("Alter")),
    Row("CreateDelegationToken", {"maxLifetimeMs": -1}, None),
    Row("RenewDelegationToken", {"hmac": b"h", "renewPeriodMs": -1}, None),
    Row("ExpireDelegationToken", {"hmac": b"h", "expiryTimePeriodMs": -1}, None),
    Row("DescribeDelegationToken", {"owners": None}, None),
    Row("SaslHandshake", {"mechanism": "PLAIN"}, None),
    Row("SaslAuthenticate", {"authBytes": b"x"}, None),
    Row("DescribeUserScramCredentials", {"users": []}, cluster("Describe")),
    Row("AlterPartition", {"brokerId": 7, "topics": []}, None),
    Row("DescribeCluster", {"includeClusterAuthorizedOperations": True}, cluster("Describe")),
    Row("DescribeProducers", {"topics": [{"name": TOPIC, "partitionIndexes": [0]}]}, topic("Read")),
    Row("DescribeTransactions", {"transactionalIds": [TXN]}, txn("Describe")),
    Row("ListTransactions", {}, txn("Describe")),
    Row("AllocateProducerIds", {"brokerId": 7}, None),
]  # fmt: skip
