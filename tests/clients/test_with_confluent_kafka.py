"""librdkafka through confluent-kafka: producers, groups of both protocols, the admin client."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

RECORDS = 500
TIMEOUT_S = 120
BASE_TIMESTAMP_MS = 1_700_000_000_000


@pytest.fixture
def admin(target):
    return AdminClient({"bootstrap.servers": target.bootstrap})


@pytest.fixture
def topic(target, admin, name):
    made = admin.create_topics([NewTopic(name, 3, -1, config={"retention.ms": "-1"})])
    made[name].result(TIMEOUT_S)
    target.until_known(name)
    return name


def produce(target, topic, count=RECORDS, **settings):
    producer = Producer({"bootstrap.servers": target.bootstrap, **settings})
    failures = []
    for index in range(count):
        producer.produce(
            topic, b"value-%d" % index, b"key-%d" % index, index % 3, timestamp=BASE_TIMESTAMP_MS + index,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def consumer(target, group, **settings):
    if settings.get("group.protocol") != "consumer":
        settings = {"heartbeat.interval.ms": 300, **settings}  # a member hears of a rebalance with its heartbeat
    return Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, **settings,
    })  # fmt: skip


def take(*consumers, count):
    """Values by the consumer that got them."""
    taken = [[] for _ in consumers]
    while sum(map(len, taken)) < count:
        for index, one in enumerate(consumers):
            for message in one.consume(count, timeout=0.2):
                assert message.error() is None, message.error()
                taken[index].append(message.value())
    return taken


def values(count=RECORDS, start=0):
    return sorted(b"value-%d" % index for index in range(start, count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.needs("InitProducerId")
def test_confluent_idempotent(target, admin, name, codec):
    topic = f"{name}-{codec}"
    admin.create_topics([NewTopic(topic, 3, -1)])[topic].result(TIMEOUT_S)
    produce(target, topic, **{"enable.idempotence": True, "compression.type": codec})
    reader = consumer(target, "nobody")
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    assert sorted(take(reader, count=RECORDS)[0]) == values()
    reader.close()


@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True}, {"acks": 0}], ids=str)
@pytest.mark.parametrize("batch", [1, 4, 100])
def test_messages_get_the_time_of_the_broker_however_they_are_batched(admin, target, name, batch, settings):
    name = "-".join([name, str(batch), *settings])
    made = admin.create_topics([NewTopic(name, 3, 1, config={"message.timestamp.type": "LogAppendTime"})])
    made[name].result(TIMEOUT_S)
    produce(target, name, 60, **{"batch.num.messages": batch, "linger.ms": 50, **settings})
    reader = consumer(target, name)
    reader.assign([TopicPartition(name, index, OFFSET_BEGINNING) for index in range(3)])
    messages = []
    while len(messages) < 60:
        messages += reader.consume(60, timeout=1)
    reader.close()
    assert {one.value() for one in messages} == {b"value-%d" % index for index in range(60)}
    assert {one.timestamp()[0] for one in messages} == {TIMESTAMP_LOG_APPEND_TIME}


def test_confluent_offsets_by_time(target, topic):
    produce(target, topic)
    reader = consumer(target, "nobody")
    assert reader.get_watermark_offsets(TopicPartition(topic, 0)) == (0, len(range(0, RECORDS, 3)))
    found = reader.offsets_for_times([TopicPartition(topic, 0, BASE_TIMESTAMP_MS + 30)], timeout=TIMEOUT_S)
    assert [one.offset for one in found] == [10]
    reader.close()


PROTOCOLS = [
    pytest.param({"partition.assignment.strategy": "range"}, id="range"),
    pytest.param({"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative"),
    pytest.param({"group.protocol": "consumer"}, id="server-side", marks=pytest.mark.needs("ConsumerGroupHeartbeat")),
]


@pytest.mark.parametrize("settings", PROTOCOLS)
@pytest.mark.needs("JoinGroup")
def test_confluent_group_resumes(target, admin, name, request, settings):
    """What one consumer commits, the next one goes on from."""
    topic = f"{name}-{request.node.callspec.id}"
    admin.create_topics([NewTopic(topic, 3, -1)])[topic].result(TIMEOUT_S)
    target.until_known(topic)
    produce(target, topic, 300)
    first = consumer(target, topic, **settings)
    first.subscribe([topic])
    assert sorted(take(first, count=300)[0]) == values(300)
    first.commit(asynchronous=False)
    first.close()
    produce(target, topic, 600)
    second = consumer(target, topic, **settings)
    second.subscribe([topic])
    assert len(take(second, count=600)[0]) == 600
    committed = second.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    assert committed[0].offset == 100
    second.close()


@pytest.mark.parametrize("settings", PROTOCOLS)
@pytest.mark.needs("JoinGroup")
def test_confluent_group_shares(target, admin, name, request, settings):
    """Two consumers own all partitions between them, none twice; when one leaves the other has them all."""
    topic = f"{name}-{request.node.callspec.id}"
    admin.create_topics([NewTopic(topic, 4, -1)])[topic].result(TIMEOUT_S)
    target.until_known(topic)
    both = [consumer(target, topic, **settings) for _ in range(2)]
    for one in both:
        one.subscribe([topic])
    await_owned(both, lambda owned: sorted(owned[0] + owned[1]) == [0, 1, 2, 3] and owned[0] and owned[1])
    both[0].close()
    await_owned(both[1:], lambda owned: owned == [[0, 1, 2, 3]])
    both[1].close()


def await_owned(consumers, is_wanted):
    while not is_wanted([sorted(one.partition for one in each.assignment()) for each in consumers]):
        for each in consumers:
            each.poll(0.05)


@pytest.mark.needs("JoinGroup")
def test_confluent_static_member(target, topic, name):
    """A member that comes back within its session has its partitions without a rebalance."""
    settings = {"group.instance.id": "one", "session.timeout.ms": 30_000}
    for _ in range(2):
        one = consumer(target, name, **settings)
        one.subscribe([topic])
        await_owned([one], lambda owned: owned == [[0, 1, 2]])
        one.close()


def test_confluent_admin_topics(target, admin, topic):
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert [partition.leader.id for partition in described.partitions] == [1, 1, 1]
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("too-many-replicas", 1, 3)])["too-many-replicas"].result(TIMEOUT_S)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)


@pytest.mark.needs("CreatePartitions", "InitProducerId")
def test_confluent_admin_partitions(target, admin, topic):
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    while len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) < 5:
        pass  # a broker learns of new partitions a little after its controller has made them
    delivered = []
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, b"one", partition=4, on_delivery=lambda error, message: delivered.append((error, message)))
    assert producer.flush(TIMEOUT_S) == 0
    ((error, message),) = delivered
    assert (error, message.partition(), message.offset()) == (None, 4, 0)


@pytest.mark.needs("DescribeCluster")
def test_confluent_admin_cluster(target, admin):
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert described.controller.id == 1
    assert [node.id for node in described.nodes] == [1]


def topic_settings(admin, topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items()}


@pytest.mark.needs("DescribeConfigs", "IncrementalAlterConfigs")
def test_confluent_admin_configs(target, admin, topic):
    settings = topic_settings(admin, topic)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("-1", "delete")
    changes = [
        ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    while topic_settings(admin, topic)["retention.ms"] != "86400000":
        pass
    assert topic_settings(admin, topic)["cleanup.policy"] == "delete,compact"


@pytest.mark.needs("DeleteRecords")
def test_confluent_admin_records(target, admin, topic):
    produce(target, topic)
    wanted = TopicPartition(topic, 0, 10)
    assert admin.delete_records([wanted])[wanted].result(TIMEOUT_S).low_watermark == 10
    for spec, offset in ((OffsetSpec.earliest(), 10), (OffsetSpec.latest(), len(range(0, RECORDS, 3)))):
        (found,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        assert found.result(TIMEOUT_S).offset == offset


@pytest.mark.needs("ElectLeaders")
def test_confluent_admin_election(target, admin, topic):
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(TIMEOUT_S)
    (error,) = found.values()
    assert error.name() == "ELECTION_NOT_NEEDED"


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups")
def test_confluent_admin_groups(target, admin, topic, name):
    reader = consumer(target, name)
    reader.subscribe([topic])
    await_owned([reader], lambda owned: owned == [[0, 1, 2]])
    described = admin.describe_consumer_groups([name])[name].result(TIMEOUT_S)
    assert [len(member.assignment.topic_partitions) for member in described.members] == [3]
    assert name in [one.group_id for one in admin.list_consumer_groups().result(TIMEOUT_S).valid]
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([name])[name].result(TIMEOUT_S)
    reader.close()
    offsets = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 1, 7)])
    admin.alter_consumer_group_offsets([offsets])[name].result(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(name)
    found = admin.list_consumer_group_offsets([asked])[name].result(TIMEOUT_S)
    assert [(one.partition, one.offset) for one in found.topic_partitions] == [(1, 7)]
    admin.delete_consumer_groups([name])[name].result(TIMEOUT_S)


@pytest.mark.needs("DescribeUserScramCredentials")
def test_confluent_admin_users(target, admin):
    asked = admin.describe_user_scram_credentials(["nobody"])
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        asked["nobody"].result(TIMEOUT_S)
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}
