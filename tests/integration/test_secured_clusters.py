"""Three brokers that reach each other by TLS and SASL: they replicate, elect leaders and serve clients by it alone."""

from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.broker_clusters import PATIENT, QUICK, CrashingCluster
from millrace_support.certificates import PASSWORD, Authority
from millrace_support.waiting import awaited

IDS = (1, 2, 3)
TIMEOUT_S = 60
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="between" user_broker="between" user_alice="hush";'
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return Authority().issue().write(tmp_path_factory.mktemp("stores"))


def secured(stores):
    """The properties of a broker with one listener, by TLS and SASL, for clients and brokers alike."""
    return {
        "listeners": f"SECURED://127.0.0.1:{free_port('127.0.0.1')}",
        "listener.security.protocol.map": "SECURED:SASL_SSL",
        "inter.broker.listener.name": "SECURED",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": LOGIN,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(stores.key_store_p12),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(stores.trust_store_p12),
        "ssl.truststore.password": PASSWORD,
        "min.insync.replicas": "2",
        **QUICK,
        **PATIENT,
    }


@pytest.fixture
def cluster(zookeeper, tmp_path, stores):
    place = f"{zookeeper.address}/{uuid4().hex}"
    brokers = {
        one: BrokerProcess(tmp_path / str(one), zookeeper=place, broker_id=one, properties=secured(stores))
        for one in IDS
    }
    yield CrashingCluster(brokers, place)
    for broker in brokers.values():
        broker.kill()
        broker.close()


def settings(cluster, stores, password="hush"):
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
        "ssl.ca.location": str(stores.trust_store_pem),
    }


def in_sync(admin, topic):
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions.values()
    return {one for partition in partitions for one in partition.isrs}


def test_brokers_replicate_and_take_over_by_tls_and_sasl(cluster, stores):
    admin = AdminClient(settings(cluster, stores))
    awaited(lambda: True if len(admin.list_topics(timeout=TIMEOUT_S).brokers) == len(IDS) else None, "all brokers")
    admin.create_topics([NewTopic("t", 1, replication_factor=3)])["t"].result(TIMEOUT_S)
    awaited(lambda: True if in_sync(admin, "t") == set(IDS) else None, "all replicas are in sync")
    producer = confluent_kafka.Producer({**settings(cluster, stores), "acks": "all"})
    producer.produce("t", b"before")
    assert producer.flush(TIMEOUT_S) == 0
    leader = admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions[0].leader
    cluster.crash(leader)
    producer.produce("t", b"after")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {**settings(cluster, stores), "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["t"])
    assert [consumer.consume(1, TIMEOUT_S)[0].value() for _ in range(2)] == [b"before", b"after"]
    consumer.close()
    cluster.brokers[leader].start()
    awaited(lambda: True if in_sync(admin, "t") == set(IDS) else None, "the broker that was killed is in sync again")
    assert cluster.equal_logs("t")


def test_who_has_another_password_is_not_served(cluster, stores):
    failures = []
    admin = AdminClient({**settings(cluster, stores, "wrong"), "error_cb": failures.append, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=5)

    def is_told():
        admin.poll(0.1)
        return any(one.code() == confluent_kafka.KafkaError._AUTHENTICATION for one in failures) or None

    assert awaited(is_told, "the failure of the authentication is told")
