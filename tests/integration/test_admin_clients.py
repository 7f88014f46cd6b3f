"""The admin APIs as confluent-kafka's and kafka-python's admin clients use them, each on one broker."""

import json
import re
import urllib.request

import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as confluent
from kafka.errors import for_code
from kafka.structs import TopicPartition as Place

from millrace.client import Cluster, Configs, ResourceKind, SimpleConsumer
from millrace.errors import ErrorCode
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.messages import PRODUCE
from millrace_support.admin_requests import change_request

STATIC = {"log.retention.hours": "48", "num.partitions": "3"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder / "one", properties=STATIC) as process:
        yield process


@pytest.fixture(scope="module")
def librdkafka(broker):
    return confluent.AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(scope="module")
def python(broker):
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(request, librdkafka):
    """A topic of the test's own with one partition."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)
    result(librdkafka.create_topics([confluent.NewTopic(name, 1, 1)]))
    return name


def result(futures):
    [future] = futures.values()
    return future.result(timeout=60)


def code_of(futures):
    with pytest.raises(KafkaException) as failure:
        result(futures)
    return failure.value.args[0].code()


def produce(broker, topic, count, **settings):
    """Deliver records with keys; the errors of those that were refused."""
    errors = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for index in range(count):
        producer.produce(
            topic, b"v%d" % index, b"k", 0, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(60) == 0
    return [error.code() for error in errors]


def described(librdkafka, kind, name):
    return result(librdkafka.describe_configs([confluent.ConfigResource(kind, name)]))


def change(librdkafka, kind, name, *operations, **options):
    entries = [
        confluent.ConfigEntry(key, value, incremental_operation=confluent.AlterConfigOpType[operation])
        for key, operation, value in operations
    ]
    resource = confluent.ConfigResource(kind, name, incremental_configs=entries)
    return librdkafka.incremental_alter_configs([resource], **options)


def test_topics_are_created_with_defaults_assignments_and_not_at_all(broker, librdkafka, python):
    result(librdkafka.create_topics([confluent.NewTopic("by-default")]))
    result(librdkafka.create_topics([confluent.NewTopic("assigned", 2, replica_assignment=[[1], [1]])]))
    result(librdkafka.create_topics([confluent.NewTopic("validated", 2, 1)], validate_only=True))
    python.create_topics([kafka.admin.NewTopic(name="kept", num_partitions=1, topic_configs={"retention.ms": "5"})])
    topics = librdkafka.list_topics(timeout=60).topics
    counts = {name: len(topics[name].partitions) for name in ("by-default", "assigned", "kept")}
    assert counts == {"by-default": 3, "assigned": 2, "kept": 1}
    assert "validated" not in topics
    assert described(librdkafka, "topic", "kept")["retention.ms"].value == "5"
    assert code_of(librdkafka.create_topics([confluent.NewTopic("kept", 1, 1)])) == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(for_code(ErrorCode.INVALID_REPLICATION_FACTOR)):
        python.create_topics([kafka.admin.NewTopic(name="two", num_partitions=1, replication_factor=2)])


@pytest.mark.parametrize(
    "config",
    [{"no.such.key": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}, {"remote.storage.enable": "true"}],
)
def test_a_topic_with_a_bad_configuration_is_refused_and_told_which(librdkafka, python, config):
    [(key, value)] = config.items()
    with pytest.raises(KafkaException, match=re.escape(key)) as failure:
        result(librdkafka.create_topics([confluent.NewTopic("bad", 1, 1, config=config)]))
    assert failure.value.args[0].code() == ErrorCode.INVALID_CONFIG
    assert key == "no.such.key" or value in str(failure.value)
    with pytest.raises(for_code(ErrorCode.INVALID_CONFIG), match=re.escape(key)):
        python.create_topics([kafka.admin.NewTopic(name="bad", num_partitions=1, topic_configs=config)])


def test_topics_are_deleted_by_name_and_by_id(librdkafka, python, topic):
    result(librdkafka.create_topics([confluent.NewTopic("short-lived", 1, 1)]))
    python.delete_topics(["short-lived"])
    result(librdkafka.delete_topics([topic]))
    assert not {"short-lived", topic} & set(librdkafka.list_topics(timeout=60).topics)
    assert code_of(librdkafka.delete_topics([topic])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deletion_may_be_disabled(tmp_path):
    with BrokerProcess(tmp_path / "own", properties={"delete.topic.enable": "false"}) as own:
        client = confluent.AdminClient({"bootstrap.servers": own.bootstrap})
        result(client.create_topics([confluent.NewTopic("t", 1, 1)]))
        assert code_of(client.delete_topics(["t"])) == ErrorCode.TOPIC_DELETION_DISABLED
        assert "t" in client.list_topics(timeout=60).topics


def test_partitions_are_added_and_written_to_at_once(broker, librdkafka, python, topic):
    assert result(librdkafka.create_partitions([confluent.NewPartitions(topic, 3)])) is None
    answer = python.create_partitions({topic: kafka.admin.NewPartitions(4, [[1]])})
    [added] = answer.results
    assert (added.name, added.error_code, added.error_message) == (topic, 0, None)
    result(librdkafka.create_partitions([confluent.NewPartitions(topic, 9)], validate_only=True))
    partitions = librdkafka.list_topics(topic, timeout=60).topics[topic].partitions
    assert {index: partition.leader for index, partition in partitions.items()} == dict.fromkeys(range(4), 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    delivered = []
    for index in range(4):
        producer.produce(topic, b"v", partition=index, on_delivery=lambda error, _: delivered.append(error))
    producer.flush(60)
    assert delivered == [None] * 4
    for count in (1, 4):
        refused = code_of(librdkafka.create_partitions([confluent.NewPartitions(topic, count)]))
        assert refused == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(for_code(ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
        python.create_partitions({topic: kafka.admin.NewPartitions(5, [[7]])})
    with pytest.raises(for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        python.create_partitions({"nobody": kafka.admin.NewPartitions(5)})


def test_defaults_of_a_topic_are_described(librdkafka, python, topic):
    entries = described(librdkafka, "topic", topic)
    assert {name: entries[name].value for name in ("cleanup.policy", "max.message.bytes", "segment.bytes")} == {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "segment.bytes": "1073741824",
    }
    assert entries["retention.ms"].value == str(48 * 3_600_000)
    assert {entry.source for entry in entries.values()} == {confluent.ConfigSource.DEFAULT_CONFIG.value}
    assert [*entries["segment.bytes"].synonyms] == ["log.segment.bytes"]
    assert entries["compression.type"].value == "producer"
    resource = kafka.admin.ConfigResource("TOPIC", topic)
    theirs = python.describe_configs([resource], config_filter="all", include_synonyms=True)
    flat = json.dumps(theirs, default=str)
    assert '"retention.ms"' in flat or "retention.ms" in flat
    assert str(48 * 3_600_000) in flat


def test_a_brokers_configuration_is_described(librdkafka, python):
    entries = described(librdkafka, "broker", "1")
    assert (entries["num.partitions"].value, entries["num.partitions"].is_read_only) == ("3", True)
    assert entries["num.partitions"].source == confluent.ConfigSource.STATIC_BROKER_CONFIG.value
    assert (entries["admin.token"].value, entries["admin.token"].is_sensitive) == (None, True)
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    flat = json.dumps(
        python.describe_configs([kafka.admin.ConfigResource("BROKER", "1")], config_filter="all"), default=str
    )
    assert "log.retention.hours" in flat
    unknown = librdkafka.describe_configs(
        [confluent.ConfigResource("broker", "1"), confluent.ConfigResource("topic", "x")]
    )
    errors = [future.exception(60) for future in unknown.values()]
    assert [error and error.args[0].code() for error in errors] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topics_configuration_is_changed_bit_by_bit_and_as_a_whole(librdkafka, python, topic):
    result(change(librdkafka, "topic", topic, ("cleanup.policy", "APPEND", "compact"), ("retention.ms", "SET", "77")))
    assert described(librdkafka, "topic", topic)["cleanup.policy"].value == "delete,compact"
    result(
        change(librdkafka, "topic", topic, ("cleanup.policy", "SUBTRACT", "delete"), ("retention.ms", "DELETE", None))
    )
    entries = described(librdkafka, "topic", topic)
    assert (entries["cleanup.policy"].value, entries["retention.ms"].value) == ("compact", str(48 * 3_600_000))
    result(change(librdkafka, "topic", topic, ("retention.ms", "SET", "1"), validate_only=True))
    assert described(librdkafka, "topic", topic)["retention.ms"].value == str(48 * 3_600_000)
    whole = confluent.ConfigResource("topic", topic, set_config={"segment.ms": "100000"})
    result(librdkafka.alter_configs([whole]))
    entries = described(librdkafka, "topic", topic)
    assert (entries["cleanup.policy"].value, entries["segment.ms"].value) == ("delete", "100000")
    python.alter_configs([kafka.admin.ConfigResource("TOPIC", topic, configs={"segment.bytes": "5000"})])
    entries = described(librdkafka, "topic", topic)
    assert (entries["segment.ms"].value, entries["segment.bytes"].value) == ("100000", "5000")
    for operation in (("retention.ms", "SET", "x"), ("no.such", "SET", "1"), ("retention.ms", "APPEND", "1")):
        assert code_of(change(librdkafka, "topic", topic, operation)) == ErrorCode.INVALID_CONFIG
    unknown = change(librdkafka, "topic", "nobody", ("retention.ms", "SET", "1"))
    assert code_of(unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_changes_made_at_the_same_time_are_all_kept(broker, librdkafka, topic):
    values = {"retention.ms": "1", "retention.bytes": "2", "segment.ms": "3", "flush.ms": "4", "segment.bytes": "5000"}
    changes = [change(librdkafka, "topic", topic, (name, "SET", value)) for name, value in values.items()]
    others = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    changes.append(change(others, "topic", topic, ("cleanup.policy", "APPEND", "compact")))
    for futures in changes:
        result(futures)
    entries = described(librdkafka, "topic", topic)
    assert {name: entries[name].value for name in values} == values
    assert entries["cleanup.policy"].value == "delete,compact"


def test_live_defaults_are_obeyed_and_outlive_a_restart(tmp_path):
    with BrokerProcess(tmp_path / "own", properties={"message.max.bytes": "3000"}) as own:
        client = confluent.AdminClient({"bootstrap.servers": own.bootstrap})
        result(client.create_topics([confluent.NewTopic("t", 1, 1)]))
        change_all_brokers(own, ("message.max.bytes", "2000"))
        result(change(client, "broker", "1", ("message.max.bytes", "SET", "1000"), ("max.connections", "SET", "500")))
        entry = described(client, "topic", "t")["max.message.bytes"]
        assert entry.source == confluent.ConfigSource.DYNAMIC_BROKER_CONFIG.value
        assert entry.value == "1000"
        assert large(own, 1100) == ErrorCode.MESSAGE_TOO_LARGE
        assert described(client, "broker", "1")["max.connections"].value == "500"
        result(change(client, "broker", "1", ("message.max.bytes", "DELETE", None)))
        assert large(own, 1100) is None
        assert large(own, 2100) == ErrorCode.MESSAGE_TOO_LARGE
        own.restart()
        client = confluent.AdminClient({"bootstrap.servers": own.bootstrap})
        assert described(client, "topic", "t")["max.message.bytes"].value == "2000"
        assert large(own, 2100) == ErrorCode.MESSAGE_TOO_LARGE
        change_all_brokers(own, ("message.max.bytes", None))
        assert large(own, 2100) is None
        for name, value in (("num.partitions", "9"), ("log.retention.ms", "x"), ("no.such.key", "1")):
            refused = change(client, "broker", "1", (name, "SET", value))
            assert code_of(refused) == ErrorCode.INVALID_REQUEST


def change_all_brokers(broker, *operations):
    """Changes properties of all brokers by Millrace's client, as neither stock client can name these."""
    with Cluster(broker.bootstrap) as cluster:
        values = {name: value for name, value in operations if value is not None}
        unset = [name for name, value in operations if value is None]
        Configs(cluster).change(ResourceKind.BROKER, "", values, unset)


def large(broker, size):
    """Produces one record of so many bytes; returns the error code, or None."""
    outcome = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    producer.produce("t", b"x" * size, partition=0, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(60) == 0
    [error] = outcome
    return error and error.code()


def test_max_message_bytes_of_a_topic_is_obeyed_live(broker, librdkafka, topic):
    assert produce(broker, topic, 1) == []
    result(change(librdkafka, "topic", topic, ("max.message.bytes", "SET", "10")))
    assert produce(broker, topic, 1) == [ErrorCode.MESSAGE_TOO_LARGE]


def test_retention_and_segments_are_obeyed_live(broker, librdkafka, topic):
    result(change(librdkafka, "topic", topic, ("segment.bytes", "SET", "500"), ("file.delete.delay.ms", "SET", "0")))
    for _ in range(10):
        assert produce(broker, topic, 5) == []
    assert earliest_after_retention(broker, topic) == 0
    result(change(librdkafka, "broker", "1", ("log.retention.bytes", "SET", "500")))
    kept = earliest_after_retention(broker, topic)
    result(change(librdkafka, "broker", "1", ("log.retention.bytes", "DELETE", None)))
    assert 0 < kept < 50
    result(change(librdkafka, "topic", topic, ("retention.bytes", "SET", "0")))
    assert earliest_after_retention(broker, topic) == 50


def earliest_after_retention(broker, topic):
    request = change_request(broker, "maintenance/retention")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
    with Cluster(broker.bootstrap) as cluster:
        return SimpleConsumer(cluster).earliest(topic, 0)


def test_one_replica_is_enough_for_acks_all_whatever_min_insync_replicas_says(broker, librdkafka, topic):
    result(change(librdkafka, "topic", topic, ("min.insync.replicas", "SET", "2")))
    assert produce(broker, topic, 1, acks="all") == []


def test_times_too_far_away_are_refused(broker, librdkafka, topic):
    result(change(librdkafka, "topic", topic, ("message.timestamp.before.max.ms", "SET", "3600000")))
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False, acks="all", retries=0)
    with pytest.raises(for_code(ErrorCode.INVALID_TIMESTAMP)):
        producer.send(topic, b"v", b"k", partition=0, timestamp_ms=1_000).get(60)
    assert producer.send(topic, b"v", b"k", partition=0).get(60).offset == 0
    producer.close()


def test_a_keyless_record_to_a_compacted_topic_is_refused(broker, librdkafka, topic):
    result(change(librdkafka, "topic", topic, ("cleanup.policy", "SET", "compact")))
    outcome = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", partition=0, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(60) == 0
    assert outcome[0].code() == ErrorCode.INVALID_RECORD
    assert produce(broker, topic, 1) == []


def test_topics_are_not_made_by_those_who_do_not_want_it(broker, librdkafka, tmp_path):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "allow.auto.create.topics": False}
    )
    assert consumer.list_topics("unwanted", timeout=60).topics["unwanted"].error is not None
    consumer.close()
    assert "unwanted" not in librdkafka.list_topics(timeout=60).topics
    with BrokerProcess(tmp_path / "strict", properties={"auto.create.topics.enable": "false"}) as strict:
        producer = confluent_kafka.Producer({"bootstrap.servers": strict.bootstrap})
        found = producer.list_topics("unwanted", timeout=60).topics["unwanted"]
        assert found.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_are_deleted_durably(tmp_path):
    with BrokerProcess(tmp_path / "own") as own:
        client = confluent.AdminClient({"bootstrap.servers": own.bootstrap})
        result(client.create_topics([confluent.NewTopic("t", 2, 1)]))
        assert produce(own, "t", 10) == []
        assert result(client.delete_records([TopicPartition("t", 0, 4)])).low_watermark == 4
        python = kafka.admin.KafkaAdminClient(bootstrap_servers=own.bootstrap)
        assert python.delete_records({Place("t", 0): 6})[Place("t", 0)]["low_watermark"] == 6
        assert code_of(client.delete_records([TopicPartition("t", 0, 11)])) == ErrorCode.OFFSET_OUT_OF_RANGE
        python.close()
        own.kill()
        own.start()
        consumer = confluent_kafka.Consumer({"bootstrap.servers": own.bootstrap, "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60) == (6, 10)
        client = confluent.AdminClient({"bootstrap.servers": own.bootstrap})
        assert result(client.delete_records([TopicPartition("t", 0, -1)])).low_watermark == 10
        result(change(client, "topic", "t", ("cleanup.policy", "SET", "compact")))
        assert code_of(client.delete_records([TopicPartition("t", 0, -1)])) == ErrorCode.POLICY_VIOLATION
        consumer.close()


def test_log_directories_are_described_and_partitions_stay_in_them(broker, python, topic):
    produce(broker, topic, 100)
    [described] = python.describe_log_dirs()
    [folder] = described["log_dirs"]
    sizes = {one["name"]: one["partitions"] for one in folder["topics"]}
    assert folder["log_dir"] == str(broker.data_dir)
    assert sizes[topic][0]["partition_size"] == (broker.data_dir / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert folder["total_bytes"] >= folder["usable_bytes"] > 0
    for path, code in ((str(broker.data_dir), ErrorCode.NONE), ("/no/such", ErrorCode.LOG_DIR_NOT_FOUND)):
        [answer] = python.alter_replica_log_dirs({kafka.structs.TopicPartitionReplica(topic, 0, 1): path}).values()
        assert answer is for_code(code)


def test_the_cluster_is_described(broker, librdkafka, python):
    theirs = librdkafka.describe_cluster(include_authorized_operations=True, request_timeout=60).result()
    ours = python.describe_cluster()
    assert theirs.cluster_id == ours["cluster_id"]
    assert len(theirs.cluster_id) == 22
    assert (theirs.controller.id, [node.id for node in theirs.nodes]) == (1, [1])
    assert (ours["controller_id"], [one["broker_id"] for one in ours["brokers"]]) == (1, [1])


def test_topics_are_described(librdkafka, python, topic):
    theirs = result(librdkafka.describe_topics(TopicCollection([topic])))
    assert [(one.id, one.leader.id) for one in theirs.partitions] == [(0, 1)]
    assert topic in str(python.describe_topic_partitions([topic]))


def test_no_election_and_no_reassignment_is_needed(librdkafka, python, topic):
    partition = TopicPartition(topic, 0)
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        [error] = librdkafka.elect_leaders(kind, [partition]).result(60).values()
        assert error.code() == ErrorCode.ELECTION_NOT_NEEDED
    assert librdkafka.elect_leaders(ElectionType.PREFERRED, None).result(60) == {}
    assert not python.list_partition_reassignments()
    place = Place(topic, 0)
    outcomes = [python.alter_partition_reassignments({place: replicas})[place] for replicas in ([1], [2], None)]
    codes = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assert outcomes == [None, *map(for_code, codes)]


def test_a_partitions_producers_are_described(broker, python, topic):
    batch = encode_batch([NewRecord(b"v", b"k", 1_700_000_000_000)] * 2, producer=BatchProducer(77, 2, 0))
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
    request = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [data]}
    with Cluster(broker.bootstrap) as cluster:
        cluster.leader_connection(topic, 0).request(PRODUCE, request)
    described = python.describe_producers([Place(topic, 0)])
    [producer] = described[Place(topic, 0)].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 1)
    assert (producer.last_timestamp, producer.current_transaction_start_offset) == (1_700_000_000_000, -1)


@pytest.mark.parametrize("age", [(0, 10, 1), (0, 11), (1, 0), (1, 1), (2, 3)], ids=lambda age: ".".join(map(str, age)))
def test_clients_of_older_times(broker, librdkafka, age):
    """kafka-python as it would talk to an older broker: the first versions of each API."""
    name = "of-" + "-".join(map(str, age))
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap, api_version=age)
    new = kafka.admin.NewTopic(name=name, num_partitions=1, replication_factor=1, topic_configs={"retention.ms": "5"})
    assert client.create_topics([new])["topics"][0]["error_code"] == 0
    if age >= (0, 11):
        resource = kafka.admin.ConfigResource("TOPIC", name, configs={"segment.bytes": "9999"})
        assert client.alter_configs([resource]) == {"topic": {name: "OK"}}
        described = client.describe_configs([kafka.admin.ConfigResource("TOPIC", name)], config_filter="all")
        assert described["topic"][name]["segment.bytes"]["value"] == "9999"
        assert client.delete_records({Place(name, 0): 0})[Place(name, 0)]["low_watermark"] == 0
    if age >= (1, 0):
        assert client.create_partitions({name: kafka.admin.NewPartitions(2)}).results[0].error_code == 0
        topics = client.describe_log_dirs()[0]["log_dirs"][0]["topics"]
        assert {one["name"]: len(one["partitions"]) for one in topics}[name] == 2
    assert client.delete_topics([name])["topics"][0]["error_code"] == 0
    client.close()
    assert name not in librdkafka.list_topics(timeout=60).topics
