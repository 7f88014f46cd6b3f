"""Which requests a broker answers for partitions that it leads, follows, or does not have: Apache Kafka 3.9 beside us.

One broker of each in one cluster. Each is asked the same of a partition in each role that it may have there.
"""

from uuid import uuid4

import pytest
from differential.session import Session, batch
from differential.sides import side

from millrace.errors import ErrorCode
from millrace_support.kafka_messages import Messages
from millrace_support.mixed_clusters import Software, mixed_cluster
from millrace_support.waiting import awaited

KAFKA, MILLRACE = 0, 1
RECORDS = 3
TOPICS = {"led-by-0": [0, 1], "led-by-1": [1, 0], "only-on-0": [0], "only-on-1": [1]}
ROLES = {
    "leader": {KAFKA: "led-by-0", MILLRACE: "led-by-1"},
    "follower": {KAFKA: "led-by-1", MILLRACE: "led-by-0"},
    "elsewhere": {KAFKA: "only-on-1", MILLRACE: "only-on-0"},
    "unknown": {KAFKA: "nowhere", MILLRACE: "nowhere"},
}
CONSUMER, COMPARISON, FUTURE = -1, -2, -3
EPOCHS = (0, 9)  # the leader's, and one that nobody knows yet


@pytest.fixture(scope="module")
def sessions(kafka, tmp_path_factory, zookeeper):
    """A session on each broker by its id, once both have all records."""
    folder, chroot = tmp_path_factory.mktemp("brokers"), f"{zookeeper.address}/{uuid4().hex}"
    software = {KAFKA: Software.KAFKA, MILLRACE: Software.MILLRACE}
    with mixed_cluster(kafka, folder, chroot, software, {}) as brokers:
        messages = Messages([kafka])
        made = {
            each: Session(side(str(each), broker.bootstrap, messages), "Roles", "roles", 0)
            for each, broker in brokers.brokers.items()
        }
        for topic, replicas in TOPICS.items():
            create(made[KAFKA], topic, replicas)
            brokers.until_known(topic)
            made[replicas[0]].await_topic(topic, 1)
            for number in range(RECORDS):
                made[replicas[0]].produce(topic, batch(number))
        for topic, replicas in TOPICS.items():
            for each in replicas:
                await_last(brokers, each, topic)
        yield made
        for session in made.values():
            session.close()


def await_last(brokers, broker_id, topic):
    awaited(lambda: b"value-2" in brokers.log_bytes(broker_id, topic) or None, f"broker {broker_id} has all of {topic}")


def create(session, topic, replicas):
    asked = {"name": topic, "numPartitions": -1, "replicationFactor": -1}
    assigned = {"assignments": [{"partitionIndex": 0, "brokerIds": replicas}]}
    (made,) = session.call("CreateTopics", 5, topics=[asked | assigned], timeoutMs=60_000)["topics"]
    assert made["errorCode"] == 0, made


def describe_producers(session, topic):
    answer = session.call("DescribeProducers", 0, topics=[{"name": topic, "partitionIndexes": [0]}])
    (one,) = answer["topics"][0]["partitions"]
    return ErrorCode(one["errorCode"]).name, len(one["activeProducers"])


def list_offsets(version, replica_id, timestamp, epoch=-1):
    count = {"maxNumOffsets": 5} if version == 0 else {}
    current = {"currentLeaderEpoch": epoch} if version >= 4 else {}

    def ask(session, topic):
        asked = {"partitionIndex": 0, "timestamp": timestamp, **count, **current}
        topics = [{"name": topic, "partitions": [asked]}]
        answer = session.call("ListOffsets", version, replicaId=replica_id, topics=topics)
        (one,) = answer["topics"][0]["partitions"]
        told = one["oldStyleOffsets"] if version == 0 else one["offset"]
        return ErrorCode(one["errorCode"]).name, told

    return ask


def fetch(version, replica_id, rack="", epoch=-1):
    more = {"rackId": rack} if version >= 11 else {}

    def ask(session, topic):
        current = {"currentLeaderEpoch": epoch} if version >= 9 else {}
        asked = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000, **current}]
        topics = [{"topic": topic, "partitions": asked}]
        answer = session.call("Fetch", version, replicaId=replica_id, maxWaitMs=0, minBytes=0, topics=topics, **more)
        (one,) = answer["responses"][0]["partitions"]
        return ErrorCode(one["errorCode"]).name, one["highWatermark"]

    return ask


def offset_for_leader_epoch(replica_id, epoch=-1):
    def ask(session, topic):
        asked = [{"partition": 0, "leaderEpoch": 0, "currentLeaderEpoch": epoch}]
        topics = [{"topic": topic, "partitions": asked}]
        answer = session.call("OffsetForLeaderEpoch", 3, replicaId=replica_id, topics=topics)
        (one,) = answer["topics"][0]["partitions"]
        return ErrorCode(one["errorCode"]).name, one["endOffset"]

    return ask


def delete_records(session, topic):
    topics = [{"name": topic, "partitions": [{"partitionIndex": 0, "offset": 0}]}]
    answer = session.call("DeleteRecords", 1, topics=topics, timeoutMs=60_000)
    (one,) = answer["topics"][0]["partitions"]
    return ErrorCode(one["errorCode"]).name, one["lowWatermark"]


def describe_log_dirs(session, topic):
    answer = session.call("DescribeLogDirs", 1, topics=[{"topic": topic, "partitions": [0]}])
    (found,) = answer["results"]
    return found["errorCode"], [
        (partition["partitionIndex"], partition["offsetLag"], partition["isFutureKey"])
        for one in found["topics"]
        for partition in one["partitions"]
    ]


REQUESTS = {
    "DescribeProducers": describe_producers,
    "DeleteRecords": delete_records,
    "DescribeLogDirs": describe_log_dirs,
    **{f"Fetch v4 by {who}": fetch(4, who) for who in (CONSUMER, COMPARISON)},
    **{f"Fetch v11 by {who}": fetch(11, who) for who in (CONSUMER, COMPARISON)},
    "Fetch v11 by a consumer in a rack": fetch(11, CONSUMER, "rack"),
    **{f"Fetch v11 in epoch {epoch}": fetch(11, CONSUMER, "rack", epoch) for epoch in EPOCHS},
    **{f"Fetch v9 in epoch {epoch}": fetch(9, CONSUMER, "rack", epoch) for epoch in EPOCHS},
    **{f"OffsetForLeaderEpoch by {who}": offset_for_leader_epoch(who) for who in (CONSUMER, COMPARISON)},
    **{f"OffsetForLeaderEpoch in epoch {epoch}": offset_for_leader_epoch(CONSUMER, epoch) for epoch in EPOCHS},
    **{
        f"ListOffsets v{version} of {timestamp} by {who}": list_offsets(version, who, timestamp)
        for version in (0, 1, 7)
        for timestamp in (-1, -2, 0, 1 << 50)
        for who in (CONSUMER, COMPARISON, FUTURE)
    },
    **{
        f"ListOffsets v4 in epoch {epoch} by {who}": list_offsets(4, who, -1, epoch)
        for epoch in EPOCHS
        for who in (CONSUMER, COMPARISON)
    },
}


DIFFERENT = {
    # (request, role): what Kafka answers, what we answer, why
    ("Fetch v4 by -2", "follower"): ("NOT_LEADER_OR_FOLLOWER", "NONE", "old versions of kafka-replica-verification"),
    ("Fetch v11 by -1", "follower"): ("NONE", "NOT_LEADER_OR_FOLLOWER", "it may have old metadata (docs/cluster.md)"),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_answers_in_each_role(sessions, name, role):
    kafkas, ours = (REQUESTS[name](sessions[each], ROLES[role][each]) for each in (KAFKA, MILLRACE))
    if (name, role) in DIFFERENT:
        assert (kafkas[0], ours[0]) == DIFFERENT[name, role][:2]
    else:
        assert ours == kafkas
