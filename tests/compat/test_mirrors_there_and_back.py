"""Topics, writers and groups move between Millrace and Apache Kafka 4.1, over and back; each record is read once."""

from contextlib import ExitStack

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_pipelines.mirror import switch_over
from millrace_pipelines.mirror.settings import Way
from millrace_support.await_brokers import await_coordinators
from millrace_support.mirrors_there_and_back import Travellers, both_ways
from millrace_support.running_mirrors import QUICK

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def brokers(find_peer, tmp_path_factory):
    with ExitStack() as stack:
        millrace = stack.enter_context(BrokerProcess(tmp_path_factory.mktemp("millrace"), properties=QUICK))
        kafka = stack.enter_context(KafkaBroker(find_peer("4.1"), tmp_path_factory.mktemp("kafka"), properties=QUICK))
        await_coordinators(kafka)
        yield {"millrace": millrace.bootstrap, "4.1": kafka.bootstrap}


@pytest.mark.soak(rounds=3, soak_rounds=50)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "pair",
    [("millrace", "4.1", Way.COPY), ("4.1", "millrace", Way.COPY), ("4.1", "millrace", Way.FOLLOW)],
    ids="-".join,
)
def test_a_group_that_moves_with_its_topic_reads_each_record_once(brokers, pair, protocol, rounds, monkeypatch):
    home, abroad, way = pair
    monkeypatch.setattr(switch_over, "STILL_S", 0.2)
    Travellers(*both_ways(brokers[home], brokers[abroad], way), seed=7, protocol=protocol).travel(rounds)
