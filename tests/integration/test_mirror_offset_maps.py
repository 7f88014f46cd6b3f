"""`__mirror_offsets` on a real broker: what is committed is read, what isn't is not, and what is foreign is named."""

import pytest

from millrace import Producer
from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.mirror.offset_map import MappedRuns, OffsetMapError, Run
from millrace_pipelines.mirror.offset_map_topic import (
    OFFSET_MAP_TOPIC,
    MapKey,
    OffsetMaps,
    create_offset_map_topic,
    encode_key,
    map_partition,
    map_records,
    remove_passed,
)

CLICKS, VIEWS = ("clicks", 0), ("views", 3)


@pytest.fixture
def cluster(broker):
    with Cluster(broker.bootstrap) as cluster:
        create_offset_map_topic(cluster)
        yield cluster


@pytest.fixture
def producer(broker, cluster):
    with Producer(broker_list=broker.bootstrap, producer_type="async", transactional_id="mirror") as producer:
        producer.init_transactions()
        yield producer


def send(producer, partition, *runs, mirror="east", next_source=None):
    mapped = MappedRuns(runs[-1].source_end if next_source is None else next_source, runs)
    for index, key, value in map_records(mirror, *partition, mapped):
        producer.send(OFFSET_MAP_TOPIC, value, key=key, partition=index)


def committed(producer, *sent, **words):
    with producer.transaction():
        send(producer, *sent, **words)


def test_maps_are_those_of_committed_transactions_and_go_on(cluster, producer):
    maps = OffsetMaps(cluster, "east")
    committed(producer, CLICKS, Run(0, 0, 5), Run(7, 5, 1))
    committed(producer, VIEWS, Run(3, 0, 1))
    committed(producer, CLICKS, Run(0, 700, 9), mirror="west")
    producer.begin_transaction()
    send(producer, CLICKS, Run(8, 6, 100))
    producer.abort_transaction()
    first = maps.read([CLICKS, VIEWS, ("other", 0)])
    assert {one: list(found) for one, found in first.items()} == {
        CLICKS: [Run(0, 0, 5), Run(7, 5, 1)], VIEWS: [Run(3, 0, 1)], ("other", 0): []
    }  # fmt: skip
    committed(producer, CLICKS, Run(8, 6, 1), Run(9, 9, 1), next_source=12)
    again = maps.read([CLICKS])[CLICKS]
    assert list(again) == [Run(0, 0, 5), Run(7, 5, 2), Run(9, 9, 1)]
    assert again.next_source == 12
    assert list(OffsetMaps(cluster, "west").read([CLICKS])[CLICKS]) == [Run(0, 700, 9)]


def test_an_open_transaction_is_not_read_until_it_is_committed(cluster, producer):
    maps = OffsetMaps(cluster, "east")
    producer.begin_transaction()
    send(producer, CLICKS, Run(0, 0, 5))
    producer.flush()
    assert list(maps.read([CLICKS])[CLICKS]) == []
    producer.commit_transaction()
    consumer, index = SimpleConsumer(cluster), map_partition("east", *CLICKS)
    consumer.fetch(OFFSET_MAP_TOPIC, index, 1, max_wait_ms=30_000)  # the marker
    assert list(maps.read([CLICKS])[CLICKS]) == [Run(0, 0, 5)]


FOREIGN = {
    "a key of another writer": NewRecord(b"x", b"mine"),
    "no key": NewRecord(b"x"),
    "a damaged value": NewRecord(b"x", encode_key(MapKey("east", *CLICKS, 0))),
    "a key that is not its value's": NewRecord(
        map_records("east", *CLICKS, MappedRuns(9, [Run(8, 8, 1)]))[0].value, encode_key(MapKey("east", *CLICKS, 3))
    ),
}


@pytest.mark.parametrize("record", FOREIGN.values(), ids=FOREIGN)
def test_a_record_that_no_mirror_has_written_is_named(cluster, record):
    index = map_partition("east", *CLICKS)
    if record.key is None:  # which a compacted topic takes from nobody
        Admin(cluster).delete_topic(OFFSET_MAP_TOPIC)
        Admin(cluster).create_topic(OFFSET_MAP_TOPIC, 16)
    offset = SyncProducer(cluster).send(OFFSET_MAP_TOPIC, index, [record])
    with pytest.raises(OffsetMapError, match=f"record {offset} of __mirror_offsets-{index} .*; remove it from there"):
        OffsetMaps(cluster, "east").read([CLICKS])


def test_another_number_of_partitions_is_an_error(cluster):
    Admin(cluster).create_partitions(OFFSET_MAP_TOPIC, 17)
    for ask in (lambda: create_offset_map_topic(cluster), lambda: OffsetMaps(cluster, "east").read([CLICKS])):
        with pytest.raises(OffsetMapError, match="has 17 partitions"):
            ask()


def test_runs_that_the_target_has_deleted_get_tombstones_but_for_the_newest(cluster, producer):
    for at in range(4):
        committed(producer, CLICKS, Run(10 * at, 20 * at, 10))
        committed(producer, CLICKS, Run(10 * at, 20 * at, 10), mirror="west")
        committed(producer, VIEWS, Run(10 * at, 20 * at, 10))
    assert remove_passed(cluster, "east", {CLICKS: 29}) == 1
    assert remove_passed(cluster, "east", {CLICKS: 49}) == 1, "one is gone already"
    assert remove_passed(cluster, "east", {CLICKS: 49}) == 0
    assert remove_passed(cluster, "east", {CLICKS: 1000}) == 1, "the newest stays"
    assert remove_passed(cluster, "east", {CLICKS: 1000, VIEWS: 0}) == 0
    found = OffsetMaps(cluster, "east").read([CLICKS])[CLICKS]
    assert (found.to_target(30), found.to_target(35), found.to_target(40)) == (60, 65, 70)
