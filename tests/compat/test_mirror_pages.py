"""docs/mirror-migration.md is played against Apache Kafka 3.9, and the start of docs/mirror.md with two brokers."""

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import KafkaBroker, find_kafka
from millrace_support.await_brokers import await_coordinators
from millrace_support.mirror_pages import Reader
from millrace_support.pages import ROOT

QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def target(tmp_path):
    with BrokerProcess(tmp_path / "target", properties=QUICK) as started:
        yield started.bootstrap


@pytest.mark.timeout(300)
def test_the_page_of_a_migration_prints_what_is_written_there(zookeeper, target, tmp_path):
    with KafkaBroker(
        find_kafka("3.9"), tmp_path / "kafka", zookeeper=f"{zookeeper.address}/migration", properties=QUICK
    ) as kafka:
        await_coordinators(kafka)
        places = {"kafka-1.example.org:9092": kafka.bootstrap, "127.0.0.1:9192": target}
        played = Reader(tmp_path, places).play(ROOT / "docs" / "mirror-migration.md")
    assert [(command, shown) for command, shown, _ in played] == [(command, printed) for command, _, printed in played]
    assert len(played) == 7


def test_the_quick_start_prints_what_is_written_there(target, tmp_path):
    with BrokerProcess(tmp_path / "source", properties=QUICK) as source:
        places = {"127.0.0.1:9092": source.bootstrap, "127.0.0.1:9192": target}
        played = Reader(tmp_path, places).play(ROOT / "docs" / "mirror.md", "Try it")
    assert [(command, shown) for command, shown, _ in played] == [(command, printed) for command, _, printed in played]
    assert len(played) == 7
