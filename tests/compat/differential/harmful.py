"""Requests that would change something if a broker let them through, for somebody who may do nothing.

They complete the rows of `guarded`, which change nothing that other rows look at: together there is a row for every
API in every version that Millrace serves.
"""

from differential.guarded import BROKER_CONFIG_KIND, GROUP, OTHER, TOPIC, TXN, Row, partitions, produce
from differential.session import record

from millrace.records.record import encode_batch

NEW = "new"
RESET = {"name": "retention.ms", "value": "1", "configOperation": 0}
GROWN = {"name": "message.max.bytes", "value": "100000", "configOperation": 0}
TO_ALL = {
    "resourceType": 2, "resourceName": "*", "resourcePatternType": 3, "principal": "User:nobody", "host": "*",
    "operation": 2, "permissionType": 3,
}  # fmt: skip
JOINING = {"memberEpoch": 0, "rebalanceTimeoutMs": 60_000, "topicPartitions": [], "memberId": "m"}
LED_ELSEWHERE = {
    "topicName": TOPIC, "partitionIndex": 0, "controllerEpoch": 99, "leader": 7, "leaderEpoch": 99, "isr": [7],
    "replicas": [7],
}  # fmt: skip
CONTROLLER = {"controllerId": 1, "controllerEpoch": 99, "brokerEpoch": -1}


def harmful(topic_id, hmac):
    """Returns the rows for a broker with a topic of this id, and with another user's delegation token of this HMAC."""
    return [*_of_records(topic_id), *_of_groups(), *_of_topics(topic_id), *_of_the_cluster(topic_id),
            *_of_security(hmac), *_of_the_connection()]  # fmt: skip


def row(api, fields, first=0, last=99):
    return Row(api, fields, None, first, last)


def _of_records(topic_id):
    read = {"partition": 0, "partitionMaxBytes": 100}
    return [
        row("Produce", produce()),
        row("Produce", produce(acks=0)),
        row("Produce", produce(topicData=[{"topicId": topic_id, "partitionData": [
            {"index": 0, "records": encode_batch([record(0)])}]}]), 13),
        row("Fetch", {"maxBytes": 1000, "topics": [{"topicId": topic_id, "partitions": [read]}]}, 13),
        row("Fetch", {"maxBytes": 1000, "replicaState": {"replicaId": 1, "replicaEpoch": -1},
                      "topics": [{"topicId": topic_id, "partitions": [read]}]}, 15),
        row("DeleteRecords", {"topics": partitions(offset=-1), "timeoutMs": 60_000}),
        row("InitProducerId", {"transactionalId": "new", "transactionTimeoutMs": 1000}),
        row("EndTxn", {"transactionalId": TXN, "producerId": 0, "producerEpoch": 0, "committed": True}),
    ]  # fmt: skip


def _of_groups():
    offsets = [{"name": TOPIC, "partitions": [{"partitionIndex": 0, "committedOffset": 1}]}]
    return [
        row("OffsetCommit", {"groupId": GROUP, "topics": offsets}),
        row("OffsetFetch", {"groupId": GROUP, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}, last=7),
        row("OffsetDelete", {"groupId": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0}]}]}),
        row("DeleteGroups", {"groupsNames": [GROUP]}),
        row("FindCoordinator", {"key": NEW}, last=3),
        *(row("FindCoordinator", {"keyType": kind, "coordinatorKeys": [NEW]}, 4) for kind in (0, 1)),
        row("JoinGroup", {"groupId": NEW, "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 6000, "memberId": "",
                          "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
        row("ConsumerGroupHeartbeat", {**JOINING, "groupId": NEW, "subscribedTopicNames": [TOPIC]}),
        row("ConsumerGroupHeartbeat", {**JOINING, "groupId": NEW, "subscribedTopicRegex": ".*"}, 1),
        row("ConsumerGroupDescribe", {"groupIds": [GROUP]}),
    ]  # fmt: skip


def _of_topics(topic_id):
    made = {"name": NEW, "numPartitions": 2, "replicationFactor": 1}
    return [
        row("CreateTopics", {"topics": [made], "timeoutMs": 60_000}),
        row("Metadata", {"topics": [{"name": NEW}], "allowAutoTopicCreation": True}),
        row("DeleteTopics", {"topicNames": [TOPIC], "timeoutMs": 60_000}, last=5),
        row("DeleteTopics", {"topics": [{"name": TOPIC}, {"name": None, "topicId": topic_id}], "timeoutMs": 60_000}, 6),
        row("CreatePartitions", {"topics": [{"name": TOPIC, "count": 5, "assignments": None}], "timeoutMs": 60_000}),
        row("DescribeTopicPartitions", {"topics": [{"name": TOPIC}]}),
    ]


def _of_the_cluster(topic_id):
    configs = [(2, TOPIC, RESET), (BROKER_CONFIG_KIND, "", GROWN), (BROKER_CONFIG_KIND, "1", GROWN)]
    resources = [{"resourceType": kind, "resourceName": name, "configs": [one]} for kind, name, one in configs]
    whole = [{**one, "configs": [{key: each[key] for key in ("name", "value")} for each in one["configs"]]}
             for one in resources]  # fmt: skip
    isr = {"partitionIndex": 0, "leaderEpoch": 0, "newIsr": [7], "partitionEpoch": 0}
    return [
        row("AlterConfigs", {"resources": whole}),
        row("IncrementalAlterConfigs", {"resources": resources}),
        row("ElectLeaders", {"electionType": 1, "topicPartitions": None, "timeoutMs": 60_000}),
        row("AlterPartitionReassignments", {"timeoutMs": 60_000, "topics": [
            {"name": TOPIC, "partitions": [{"partitionIndex": 0, "replicas": [1]}]}]}),
        row("ControlledShutdown", {"brokerId": 1, "brokerEpoch": -1}),
        row("LeaderAndIsr", {**CONTROLLER, "ungroupedPartitionStates": [LED_ELSEWHERE], "topicStates": [
            {"topicName": TOPIC, "topicId": topic_id, "partitionStates": [LED_ELSEWHERE]}]}),
        row("StopReplica", {
            **CONTROLLER, "deletePartitions": True,
            "ungroupedPartitions": [{"topicName": TOPIC, "partitionIndex": 0}],
            "topics": [{"name": TOPIC, "partitionIndexes": [0]}],
            "topicStates": [{"topicName": TOPIC, "partitionStates": [
                {"partitionIndex": 0, "leaderEpoch": -2, "deletePartition": True}]}]}),
        row("UpdateMetadata", {**CONTROLLER, "ungroupedPartitionStates": [LED_ELSEWHERE], "topicStates": [
            {"topicName": TOPIC, "topicId": topic_id, "partitionStates": [LED_ELSEWHERE]}]}),
        row("AlterPartition", {"brokerId": 1, "brokerEpoch": -1, "topics": [
            {"topicName": TOPIC, "topicId": topic_id, "partitions": [isr]}]}),
        row("AllocateProducerIds", {"brokerId": 1, "brokerEpoch": -1}),
        row("ListConfigResources", {}),
    ]  # fmt: skip


def _of_security(hmac):
    quota = {"entity": [{"entityType": "user", "entityName": "nobody"}],
             "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}  # fmt: skip
    nothing = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}
    upsertion = {"name": "nobody", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "saltedPassword": b"p" * 32}
    return [
        row("CreateAcls", {"creations": [TO_ALL]}),
        row("DeleteAcls", {"filters": [nothing]}),
        row("AlterClientQuotas", {"entries": [quota], "validateOnly": False}),
        row("AlterUserScramCredentials", {"deletions": [{"name": "carol", "mechanism": 1}], "upsertions": [upsertion]}),
        # Everybody may make a token of their own, the only kind before version 3; a group as its renewer is refused.
        row("CreateDelegationToken", {"renewers": [{"principalType": "Group", "principalName": "g"}]}, last=2),
        row("CreateDelegationToken", {"ownerPrincipalType": "User", "ownerPrincipalName": "admin", "renewers": [],
                                      "maxLifetimeMs": -1}, 3),
        row("RenewDelegationToken", {"hmac": hmac, "renewPeriodMs": 1000}),
        row("ExpireDelegationToken", {"hmac": hmac, "expiryTimePeriodMs": -1}),
        row("DescribeDelegationToken", {"owners": None}),
    ]  # fmt: skip


def _of_the_connection():
    return [
        row("ApiVersions", {"clientSoftwareName": "nobody", "clientSoftwareVersion": "1"}),
        row("SaslHandshake", {"mechanism": "PLAIN"}),
        row("SaslAuthenticate", {"authBytes": b"\0admin\0wrong"}),
        row("AlterReplicaLogDirs", {"dirs": [{"path": "/no", "topics": [{"name": OTHER, "partitions": [0]}]}]}),
    ]
