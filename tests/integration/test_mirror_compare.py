"""The judge of mirrors, which knows nothing of Millrace, finds what `millrace mirror audit` finds."""

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_support.mirror_compare import Side, compare, main

RECORDS = [NewRecord(b"v%d" % each, b"k", 1000 + each, (("h", b"%d" % each),)) for each in range(5)]
FAULTS = {
    "lacks one": RECORDS[:2] + RECORDS[3:],
    "one twice": [*RECORDS, RECORDS[0]],
    "another order": [RECORDS[1], RECORDS[0], *RECORDS[2:]],
    "another key": [RECORDS[0]._replace(key=None), *RECORDS[1:]],
    "another value": [RECORDS[0]._replace(value=None), *RECORDS[1:]],
    "other headers": [RECORDS[0]._replace(headers=()), *RECORDS[1:]],
    "another time": [RECORDS[0]._replace(timestamp_ms=1), *RECORDS[1:]],
}


@pytest.fixture
def sides(broker):
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("orders", "east.orders"):
            Admin(cluster).create_topic(topic, 1, 1)
        write(broker, "orders", RECORDS)
    return Side(broker.bootstrap, "orders"), Side(broker.bootstrap, "east.orders")


def write(broker, topic, records):
    with Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send(topic, 0, records)


def abort(broker, topic):
    with Producer(broker_list=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0)
        producer.abort_transaction()


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_of_a_mirror_is_found(broker, sides, fault):
    write(broker, "east.orders", FAULTS[fault])
    assert compare(*sides) != []


def test_equal_mirrors_are_equal(broker, sides, capsys):
    write(broker, "east.orders", RECORDS)
    assert compare(*sides, same_offsets=True) == []
    assert main([broker.bootstrap, "orders", broker.bootstrap, "east.orders"]) == 0
    assert capsys.readouterr().out == "equal\n"


def test_offsets_count_only_where_they_are_asked_for(broker, sides):
    abort(broker, "east.orders")
    write(broker, "east.orders", RECORDS)
    assert compare(*sides) == []
    assert compare(*sides, same_offsets=True)[0] == "orders-0: record 0: source offset 0, target offset 2"


def test_other_numbers_of_partitions_are_a_difference(broker, sides):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_partitions("orders", 2)
    assert compare(*sides) == ["the source has the partitions [0, 1], the target [0]"]
