"""Kafka takes over from Millrace in ZooKeeper, and Millrace from Kafka: partitions and live configuration stay."""

from uuid import uuid4

from tenacity import retry, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.errors import MillraceError
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker

TOPIC = "kept"


@retry(
    retry=retry_if_exception_type(MillraceError) | retry_if_result(lambda found: found is None),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.05),
    reraise=True,
)
def configured_as(bootstrap, holds):
    """Kafka serves a little before its controller has told it of the topics, and obeys changes a little later."""
    found = configured(bootstrap)
    return found if holds(found) else None


def configured(bootstrap):
    """What is set for the topic, the broker and all brokers, and how many partitions the topic has."""
    with Cluster(bootstrap) as cluster:
        places = ((ResourceKind.TOPIC, TOPIC), (ResourceKind.BROKER, "1"), (ResourceKind.BROKER, ""))
        found = [
            {one.name: one.value for one in Configs(cluster).describe(*place) if one.source in ours}
            for place, ours in zip(places, ({"topic"}, {"broker, live"}, {"all brokers, live"}), strict=True)
        ]
        return found, len(cluster.metadata([TOPIC]).topic(TOPIC).partitions)


def test_configurations_and_partitions_move_to_kafka_and_back(kafka, zookeeper, tmp_path):
    address = f"{zookeeper.address}/{uuid4().hex}"
    with BrokerProcess(tmp_path / "data", zookeeper=address) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1, config={"retention.ms": "86400000"})
        Admin(cluster).create_partitions(TOPIC, 3)
        configs = Configs(cluster)
        configs.change(ResourceKind.TOPIC, TOPIC, {"cleanup.policy": "compact,delete"})
        configs.change(ResourceKind.BROKER, "1", {"log.segment.bytes": "7000000"})
        configs.change(ResourceKind.BROKER, "", {"log.retention.ms": "8000000"})
        before = configured(broker.bootstrap)
        assert broker.stop() == 0
    assert before == (
        [
            {"retention.ms": "86400000", "cleanup.policy": "compact,delete"},
            {"log.segment.bytes": "7000000"},
            {"log.retention.ms": "8000000"},
        ],
        3,
    )
    with KafkaBroker(kafka, tmp_path / "data", zookeeper=address) as theirs:
        configured_as(theirs.bootstrap, lambda found: found == before)
        with Cluster(theirs.bootstrap) as cluster:
            Configs(cluster).change(ResourceKind.TOPIC, TOPIC, {"max.message.bytes": "99"}, ["cleanup.policy"])
            Configs(cluster).change(ResourceKind.BROKER, "", {"message.max.bytes": "5000"})
            Admin(cluster).create_partitions(TOPIC, 4)
        after = configured_as(theirs.bootstrap, lambda found: found[1] == 4 and "message.max.bytes" in found[0][2])
    assert after[0][0] == {"retention.ms": "86400000", "max.message.bytes": "99"}
    with BrokerProcess(tmp_path / "data", zookeeper=address) as broker:
        assert configured(broker.bootstrap) == after
