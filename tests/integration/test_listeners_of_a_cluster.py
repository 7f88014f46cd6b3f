"""Two brokers with listeners for brokers and for clients: each side goes its own way, and ZooKeeper has both."""

import json
import ssl
import threading
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.client import Cluster, Configs, ResourceKind
from millrace.clock import SystemClock
from millrace.errors import ZooKeeperError
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.zk import paths
from millrace.zk.brokers import read_brokers
from millrace.zk.session import ZooKeeperSession
from millrace_support.certificates import Authority
from millrace_support.raw import RawConnection

AUTHORITY = Authority()
WAIT_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return AUTHORITY.issue().write(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(zookeeper, files, tmp_path_factory):
    """(address in ZooKeeper, the addresses of each broker by listener)"""
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    at = {number: {name: f"127.0.0.1:{free_port()}" for name in ("INTERNAL", "OUTER")} for number in (1, 2)}
    brokers = []
    try:
        for number, addresses in at.items():
            properties = {
                "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
                "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OUTER:SSL",
                "inter.broker.listener.name": "INTERNAL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(files.key_store_pem),
            }
            folder = tmp_path_factory.mktemp(f"broker-{number}")
            brokers.append(BrokerProcess(folder, zookeeper=chroot, broker_id=number, properties=properties))
        yield chroot, at
    finally:
        for broker in brokers:
            broker.close()


def secure(at, files):
    return {
        "bootstrap.servers": at[1]["OUTER"],
        "security.protocol": "SSL",
        "ssl.ca.location": str(files.trust_store_pem),
    }


@pytest.mark.parametrize(("listener", "protocol"), [("INTERNAL", "PLAINTEXT"), ("OUTER", "SSL")])
def test_a_client_is_told_the_brokers_of_its_listener(cluster, files, listener, protocol):
    _, at = cluster
    config = secure(at, files) if protocol == "SSL" else {"bootstrap.servers": at[1][listener]}
    admin, pause = AdminClient(config), threading.Event()
    for _ in range(WAIT_S * 10):
        told = {one.id: f"{one.host}:{one.port}" for one in admin.list_topics(timeout=WAIT_S).brokers.values()}
        if len(told) == 2:
            break
        pause.wait(0.1)
    assert told == {number: addresses[listener] for number, addresses in at.items()}


def test_replicas_and_groups_work_behind_tls(cluster, files):
    _, at = cluster
    config = secure(at, files)
    admin = AdminClient(config)
    [created] = admin.create_topics([NewTopic("replicated", 4, 2)]).values()
    created.result(WAIT_S)
    producer = Producer({**config, "acks": "all"})
    failures = []
    for index in range(1000):
        producer.produce(
            "replicated", b"%d" % index, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert (producer.flush(WAIT_S), failures) == (0, [])
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["replicated"])
    read = set()
    while len(read) < 1000:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        read.add(int(message.value()))
    consumer.close()
    assert read == set(range(1000))


def test_zookeeper_has_all_endpoints_as_kafka_registers_them(cluster):
    chroot, at = cluster
    session = ZooKeeperSession(
        chroot,
        session_timeout_ms=1000 * WAIT_S,
        connection_timeout_ms=1000 * WAIT_S,
        on_change=lambda _: None,
        clock=SystemClock(),
    )
    session.start()
    try:
        fields = json.loads(session.get(paths.broker(1)))
        plain, outer = read_brokers(session), read_brokers(session, security_protocol="SSL")
        with pytest.raises(ZooKeeperError, match="no broker has a listener of SASL_SSL; they have PLAINTEXT, SSL"):
            read_brokers(session, security_protocol="SASL_SSL")
    finally:
        session.close()
    assert fields["listener_security_protocol_map"] == {"INTERNAL": "PLAINTEXT", "OUTER": "SSL"}
    assert fields["endpoints"] == [f"{name}://{address}" for name, address in at[1].items()]
    assert f"{fields['host']}:{fields['port']}" == at[1]["INTERNAL"]
    assert list(map(str, plain)) == [addresses["INTERNAL"] for addresses in at.values()]
    assert list(map(str, outer)) == [addresses["OUTER"] for addresses in at.values()]


def test_clients_that_have_taken_all_connections_keep_no_broker_out(cluster, files):
    """Broker 2 has a connection to broker 1 at least, so that one of all is one too many for clients."""
    _, at = cluster
    limits = {"max.connections": "1", "listener.name.internal.max.connections": "100"}
    context = ssl.create_default_context(cafile=str(files.trust_store_pem))
    with Cluster(at[1]["INTERNAL"]) as known:
        Configs(known).change(ResourceKind.BROKER, "1", limits)
        try:
            with pytest.raises(OSError), RawConnection(at[1]["OUTER"], context=context):
                pass
            with RawConnection(at[1]["INTERNAL"]) as raw:
                assert raw.request(ApiKey.API_VERSIONS, 0, {}).error_code == 0
        finally:
            Configs(known).change(ResourceKind.BROKER, "1", {}, list(limits))
