"""The ConsumerConnector and its ZooKeeper: what it grants, none where one is named, and one that comes back."""

import threading

import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster
from millrace.client.consumer import ConsumerConnector
from millrace.client.consumer.group_offsets import describe_zookeeper_group, open_session
from millrace.clock import SystemClock
from millrace.errors import InvalidConfigError, ZooKeeperError
from millrace.testing.broker import BrokerProcess
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.connector_streams import BOUNDS, SESSION_TIMEOUT_MS, all_at, fill, offsets_of, read, stream_of
from millrace_support.zookeeper_sessions import started

WAIT_S = 120
within_time = retry(
    retry=retry_if_exception_type(ZooKeeperError), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.1), reraise=True
)


@pytest.fixture(scope="module")
def connect(zookeeper):
    return f"{zookeeper.address}/leases"


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(500, 2_000), (5_000, 5_000), (100_000, 60_000)])
def test_leases_go_by_the_timeout_that_zookeeper_grants(connect, asked_ms, granted_ms):
    assert granted_and_confirmed(connect, asked_ms) == (granted_ms, True)


@within_time
def granted_and_confirmed(connect, asked_ms):
    """Returns a session's timeout and whether it is confirmed; ZooKeeperError where there is no answer in time."""
    session = ZooKeeperSession(
        connect,
        session_timeout_ms=asked_ms,
        connection_timeout_ms=WAIT_S * 1000,
        on_change=lambda _: None,
        clock=SystemClock(),
    )
    try:
        session.start()
        confirmed = session.confirm()
        if confirmed is None:
            raise ZooKeeperError("the session changes")
        return session.timeout_ms, confirmed == session.client_id[0]
    finally:
        session.close()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"group.id": "g"}, "zookeeper.connect is required"),
        ({"zookeeper.connect": "x:1"}, "group.id is required"),
        ({"group.id": "g", "zookeeper.connect": "x:1", "zk.conect": "y"}, "unknown property zk.conect"),
        ({"group.id": "a/b", "zookeeper.connect": "x:1"}, "group.id"),
        ({"group.id": "g", "zookeeper.connect": "x:1", "offsets.storage": "paper"}, "offsets.storage"),
    ],
)
def test_properties_that_make_no_sense(properties, message):
    with pytest.raises(InvalidConfigError, match=message):
        ConsumerConnector(properties)


def test_no_zookeeper_there():
    properties = {"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "200"}
    with ConsumerConnector(properties) as connector, pytest.raises(ZooKeeperError, match=r"127\.0\.0\.1:1"):
        connector.create_message_streams({"t": 1})


@pytest.mark.parametrize("connect", ["", "127.0.0.1:x"])
def test_no_servers_of_zookeepers(connect):
    with pytest.raises(InvalidConfigError, match=f"'{connect}': expected HOST:PORT"):
        open_session(connect)


def test_what_was_handed_out_is_committed_at_shutdown_by_a_zookeeper_that_comes_back(tmp_path):
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as server,
        BrokerProcess(tmp_path / "b", zookeeper=server.address) as broker,
    ):
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", 4)
            fill(cluster, "t")
        properties = BOUNDS | {"group.id": "t", "zookeeper.connect": server.address, "auto.offset.reset": "smallest"}
        connector = ConsumerConnector({**properties, "zookeeper.session.timeout.ms": "60000"})
        read(stream_of(connector, "t"), 20)
        server.kill()
        lease = connector._consumer.member.lease
        lease.renew(lease._deadline[0], 0, 0)  # it has ended, as it would have after a while
        shutdown = threading.Thread(target=connector.shutdown)
        shutdown.start()
        server.start()
        shutdown.join(120)
        with started(server.address, session_timeout_ms=SESSION_TIMEOUT_MS) as session:
            assert offsets_of(session, "t") == all_at("t", 5)
            assert describe_zookeeper_group(session, "t").members == ()
