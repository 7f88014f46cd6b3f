"""Apache Kafka 3.9 is the controller, then a Millrace session; each node is read, and written with the same bytes."""

import json

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from millrace.client import Admin, Cluster
from millrace.clock import SystemClock
from millrace.zk import codec, paths
from millrace.zk.session import ZooKeeperSession
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_broker.controller.claims import ControllerClaim, claim_controller

NOW_MS = 1_700_000_000_000


@pytest.fixture
def session(tmp_path):
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        session = ZooKeeperSession(
            server.address,
            session_timeout_ms=20_000,
            connection_timeout_ms=60_000,
            on_change=lambda _: None,
            clock=SystemClock(),
        )
        session.start()
        yield session, server.address
        session.close()


@retry(retry=retry_if_result(lambda found: found is None), stop=stop_after_delay(120), wait=wait_fixed(0.1))
def awaited(session, path):
    return session.get(path)


def brokerid_and_timestamp(data):
    fields = json.loads(data)
    return fields["brokerid"], int(fields["timestamp"])


def test_the_role_goes_from_kafka_to_millrace(session, find_peer, tmp_path):
    session, address = session
    with KafkaBroker(find_peer("3.9"), tmp_path / "data", zookeeper=address) as kafka:
        assert claim_controller(session, 2, NOW_MS) is None
        with Cluster(kafka.bootstrap) as cluster:
            Admin(cluster).create_topic("t", 2)
        for path, decode, encode in (
            (paths.CONTROLLER, brokerid_and_timestamp, lambda found: codec.encode_controller(*found)),
            (
                paths.CONTROLLER_EPOCH,
                codec.decode_controller_epoch,
                codec.encode_controller_epoch,
            ),
            (paths.topic("t"), codec.decode_topic, codec.encode_topic),
            (paths.partition_state("t", 1), codec.decode_partition_state, codec.encode_partition_state),
        ):
            data = awaited(session, path)
            assert encode(decode(data)) == data, path
    claimed = claim_controller(session, 2, NOW_MS)
    assert claimed == ControllerClaim(2, 2)
