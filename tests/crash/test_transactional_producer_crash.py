"""A producer is killed at every step of its transaction: the next one with its id finds all of it, or nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, Groups, SimpleConsumer
from millrace.client.groups import describe_transactions
from millrace.client.simple_consumer import IsolationLevel
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey

PROGRAM = Path(__file__).parent / "die_in_a_transaction.py"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
APIS = (
    ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN,
)  # fmt: skip
COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("crash"), properties=PROPERTIES) as process:
        yield process


@pytest.mark.parametrize("when", ["before", "sent", "answered"])
@pytest.mark.parametrize("api", APIS)
def test_the_next_producer_finds_all_or_nothing(broker, api, when):
    topic = f"{api.name}-{when}"
    with Cluster(broker.bootstrap) as cluster, SimpleConsumer(broker.bootstrap) as consumer:
        Admin(cluster).create_topic(topic, 3)
        died = subprocess.run(
            [sys.executable, PROGRAM, broker.bootstrap, topic, api.name, when], timeout=60, check=False
        )
        assert died.returncode == -signal.SIGKILL
        with Producer(broker_list=broker.bootstrap, transactional_id=topic) as producer:
            producer.init_transactions()
            assert describe_transactions(cluster, [topic])[0].state == "Empty"
            ends = [consumer.latest(topic, index, COMMITTED) for index in range(3)]
            assert ends == [consumer.latest(topic, index) for index in range(3)], "no transaction is open"
            found = committed(consumer, topic)
            offset = Groups(cluster).offsets(topic, [(topic, 0)])[topic, 0].offset
            everything = [b"of the dead %d" % number for number in range(3)], 5
            expected = {"before": [([], -1)], "answered": [everything]}.get(when, [([], -1), everything])
            assert (found, offset) in (expected if api is ApiKey.END_TXN else [([], -1)])
            with producer.transaction():
                producer.send(topic, b"of the next", partition=0)
        assert committed(consumer, topic) == sorted([*found, b"of the next"])


def committed(consumer, topic):
    return sorted(record.value for index in range(3) for record in consumer.messages(topic, index, isolation=COMMITTED))
