"""A quota keeps the answers to fetches empty for a while (KIP-219): whoever reads waits, and gets all.

Each broker lets a client read RATE bytes a second, in three seconds together. What is above that is answered without a
partition.
"""

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, Quotas, SimpleConsumer
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.simple_consumer import FetchRequest
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror.fetching import Fetcher

RATE, VALUE, RECORDS = 200_000, bytes(150_000), 9
TOPIC = "held-up"
TOLD = {"quota.window.num": "3", "message.max.bytes": "1000000"}


@pytest.fixture(scope="module", params=["millrace", "3.9", "4.1"])
def bootstrap(request, tmp_path_factory, find_peer):
    folder = tmp_path_factory.mktemp("broker")
    if request.param == "millrace":
        started = BrokerProcess(folder, properties=TOLD)
    else:
        zookeeper = f"{request.getfixturevalue('zookeeper').address}/quotas" if request.param == "3.9" else None
        started = KafkaBroker(find_peer(request.param), folder / "data", zookeeper=zookeeper, properties=TOLD)
    with started as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1)
        with Producer(broker_list=broker.bootstrap) as producer:
            for _ in range(RECORDS):
                producer.send(TOPIC, VALUE)
        Quotas(cluster).alter({"client-id": None}, {"consumer_byte_rate": float(RATE)})
        yield broker.bootstrap


def by_fetch(cluster, offset):
    return SimpleConsumer(cluster).fetch(TOPIC, 0, offset)


def by_multifetch(cluster, offset):
    [found] = SimpleConsumer(cluster).multifetch([FetchRequest(TOPIC, 0, offset)])
    return found


def by_mirror(cluster, offset):
    return Fetcher(cluster, IsolationLevel.READ_UNCOMMITTED, "source east").fetch({(TOPIC, 0): offset})[TOPIC, 0]


@pytest.mark.parametrize("read", [by_fetch, by_multifetch, by_mirror])
def test_what_a_quota_holds_up_comes_later(bootstrap, read):
    with Cluster(bootstrap) as cluster:
        for offset in range(RECORDS - 2):
            found = read(cluster, offset)
            assert isinstance(found, FetchedData), found
            assert next(found.messages(offset)).offset == offset
