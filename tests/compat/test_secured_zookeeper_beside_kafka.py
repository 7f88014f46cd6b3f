"""Kafka and Millrace on a ZooKeeper with TLS and passwords: nodes have the same access, clients find brokers."""

from dataclasses import replace

import pytest

from millrace.client import Admin, Cluster
from millrace.client.consumer import ConsumerConnector
from millrace.client.producer import Producer
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.zookeeper_security import SecuredZooKeeper

TOPIC = "secured"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with SecuredZooKeeper(tmp_path_factory.mktemp("secured")) as server:
        yield server


def test_nodes_have_the_access_that_kafka_gives_them(secured, kafka, tmp_path):
    properties = {**secured.tls(), "zookeeper.ssl.truststore.type": "PEM", "zookeeper.set.acl": "true"}
    login = f"-Djava.security.auth.login.config={secured.folder}/client.jaas"
    theirs = replace(kafka, java_flags=(*kafka.java_flags, login))
    with KafkaBroker(
        theirs, tmp_path / "theirs", zookeeper=f"{secured.tls_address}/theirs", properties=properties
    ) as broker, Cluster(broker.bootstrap) as cluster:  # fmt: skip
        Admin(cluster).create_topic(TOPIC, 1)
        kafkas, odd = secured.access_of_nodes("/theirs")
        assert odd == []
    with BrokerProcess(
        tmp_path / "ours",
        zookeeper=f"{secured.tls_address}/ours",
        properties={**properties, **secured.login()},
    ) as broker, Cluster(broker.bootstrap) as cluster:  # fmt: skip
        Admin(cluster).create_topic(TOPIC, 1)
        ours, odd = secured.access_of_nodes("/ours")
        assert odd == []
        clients = {**secured.tls(), "zookeeper.connect": f"{secured.tls_address}/ours"}
        with Producer(clients) as producer:
            producer.send(TOPIC, b"found")
        group = {"group.id": "g", "auto.offset.reset": "smallest", "consumer.timeout.ms": "60000", **clients}
        with ConsumerConnector(group) as connector:
            [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
            assert next(iter(stream)).value == b"found"
    common = kafkas.keys() & ours.keys()
    assert {"/", "/brokers/ids/1", f"/brokers/topics/{TOPIC}", "/config/users", "/controller"} <= common
    assert {path: kafkas[path] for path in common} == {path: ours[path] for path in common}
