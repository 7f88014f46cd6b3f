"""kafka-python: producer, group consumer, admin client."""

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import NoError, TopicAlreadyExistsError
from kafka.protocol.admin.topics import ElectionType

RECORDS = 300


@pytest.fixture
def admin(target):
    client = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(target, admin, name):
    admin.create_topics([NewTopic(name, 2, -1)])
    target.until_known(name)
    return name


def produce(target, topic, **settings):
    producer = kafka.KafkaProducer(bootstrap_servers=target.bootstrap, acks="all", **settings)
    sent = [producer.send(topic, b"value-%d" % index, partition=index % 2) for index in range(RECORDS)]
    producer.flush(60)
    assert len({(one.get().partition, one.get().offset) for one in sent}) == RECORDS
    producer.close()


def consume(target, topic, group, count):
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=target.bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, consumer_timeout_ms=60_000,
    )  # fmt: skip
    taken = []
    for message in consumer:
        taken.append(message.value)
        if len(taken) == count:
            break
    consumer.commit()
    consumer.close()
    return sorted(taken)


def values():
    return sorted(b"value-%d" % index for index in range(RECORDS))


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_kafka_python_idempotent_and_group(target, topic, name):
    produce(target, topic, enable_idempotence=True)
    assert consume(target, topic, name, RECORDS) == values()
    produce(target, topic, enable_idempotence=False, compression_type="zstd")
    assert consume(target, topic, name, RECORDS) == values()


def test_kafka_python_offsets(target, topic):
    produce(target, topic, enable_idempotence=False)
    consumer = kafka.KafkaConsumer(bootstrap_servers=target.bootstrap, group_id=None)
    partition = kafka.TopicPartition(topic, 1)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: RECORDS // 2}
    assert consumer.partitions_for_topic(topic) == {0, 1}
    consumer.close()


def test_kafka_python_admin_topics(target, admin, topic):
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    admin.delete_topics([topic])
    while topic in admin.list_topics():
        pass  # a broker learns of a deletion a little after its controller has carried it out


@pytest.mark.needs("CreatePartitions")
def test_kafka_python_admin_partitions(target, admin, topic):
    admin.create_partitions({topic: NewPartitions(4)})
    admin.wait_for_topics([topic])
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4


def topic_setting(admin, topic, name):
    (resources,) = admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
    ).values()
    return resources[topic][name]["value"]


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.needs("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs")
def test_kafka_python_admin_configs(target, admin, name, incremental):
    topic = f"{name}-{incremental}"
    admin.create_topics([NewTopic(topic, 1, 1)])
    change = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.ms": "60000"})
    admin.alter_configs([change], incremental=incremental)
    while topic_setting(admin, topic, "segment.ms") != "60000":
        pass


@pytest.mark.needs("DeleteRecords")
def test_kafka_python_admin_records(target, admin, topic):
    produce(target, topic, enable_idempotence=False)
    partition = kafka.TopicPartition(topic, 0)
    assert admin.delete_records({partition: 20})[partition]["low_watermark"] == 20


@pytest.mark.needs("DescribeCluster")
def test_kafka_python_admin_cluster(target, admin):
    assert [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]] == [1]


@pytest.mark.needs("DescribeLogDirs")
def test_kafka_python_admin_log_dirs(target, admin, topic):
    produce(target, topic, enable_idempotence=False)
    ((directory,),) = [broker["log_dirs"] for broker in admin.describe_log_dirs()]
    sizes = {
        one["partition_index"]: one["partition_size"]
        for found in directory["topics"]
        if found["name"] == topic
        for one in found["partitions"]
    }
    assert sizes.keys() == {0, 1}
    assert min(sizes.values()) > RECORDS // 2 * len("value-1")


@pytest.mark.needs("DescribeLogDirs", "AlterReplicaLogDirs")
def test_kafka_python_admin_moves_to_where_it_is(target, admin, topic):
    directory = admin.describe_log_dirs()[0]["log_dirs"][0]["log_dir"]
    (error,) = admin.alter_replica_log_dirs({(topic, 0, 1): directory}).values()
    assert error is NoError


@pytest.mark.needs("DescribeProducers", "InitProducerId")
def test_kafka_python_admin_producers(target, admin, topic):
    produce(target, topic, enable_idempotence=True)
    (found,) = admin.describe_producers([kafka.TopicPartition(topic, 0)]).values()
    assert [(one.producer_epoch, one.last_sequence) for one in found.active_producers] == [(0, RECORDS // 2 - 1)]


@pytest.mark.needs("DescribeTopicPartitions")
def test_kafka_python_admin_topic_partitions(target, admin, topic):
    (found,) = admin.describe_topic_partitions([topic])["topics"]
    assert [(one["partition_index"], one["leader_id"], one["isr_nodes"]) for one in found["partitions"]] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]


@pytest.mark.needs("ElectLeaders")
def test_kafka_python_admin_election(target, admin, topic):
    answer = admin.elect_leaders(ElectionType.PREFERRED, {topic: [0, 7]}, raise_errors=False)
    (found,) = answer.replica_election_results
    assert {one.partition_id: one.error_code for one in found.partition_result} == {0: 84, 7: 3}


@pytest.mark.needs("AlterPartitionReassignments", "ListPartitionReassignments")
def test_kafka_python_admin_reassignments(target, admin, topic):
    partition = kafka.TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups", "OffsetDelete")
def test_kafka_python_admin_groups(target, admin, topic, name):
    produce(target, topic, enable_idempotence=False)
    consume(target, topic, name, RECORDS)
    assert (name, "Empty") in [(one["group_id"], one["group_state"]) for one in admin.list_groups()]
    assert admin.describe_groups([name])[name]["group_state"] == "Empty"
    first, second = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
    assert {one: at.offset for one, at in admin.list_group_offsets([name])[name].items()} == {
        first: RECORDS // 2,
        second: RECORDS // 2,
    }
    admin.delete_group_offsets(name, [first])
    assert admin.list_group_offsets([name])[name].keys() == {second}
    assert admin.delete_groups([name]) == {name: "OK"}
    assert name not in [one["group_id"] for one in admin.list_groups()]


@pytest.mark.needs("DescribeUserScramCredentials")
def test_kafka_python_admin_users(target, admin):
    assert admin.describe_user_scram_credentials() == {}


@pytest.mark.needs("ListConfigResources")
def test_kafka_python_admin_config_resources(target, admin, topic):
    found = admin.list_config_resources()
    assert topic in found["topic"]
    assert found["broker"] == ["1"]
    assert admin.list_config_resources(["CLIENT_METRICS"]) == {}
