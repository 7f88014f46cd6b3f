"""Mirrored topics of real brokers: the target's log is the source's, and nobody else writes it."""

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from millrace import Producer
from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.client.configs import Configs, ResourceKind
from millrace.client.mirrored_appends import (
    MIRROR_SOURCE,
    MirroredAppend,
    append_mirrored,
    can_be_followed_into,
    end_mirroring,
)
from millrace.errors import BrokerError, ErrorCode, OffsetOutOfRangeError, UnknownTopicError
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.admin_requests import change_request
from millrace_support.committed_topics import PROPERTIES, transactional
from millrace_support.mirrored_topics import MIRRORED, Mirror, append, batches, create_mirrored, log_of
from millrace_support.raw import RawConnection

POLICY_VIOLATION = ErrorCode.POLICY_VIOLATION
IDS = 100  # of producers: among them is that which the target gives next


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("source"), properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def target_broker(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("target"), properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture
def target(target_broker) -> Iterator[Cluster]:
    with Cluster(target_broker.bootstrap) as cluster:
        yield cluster


def batch(*values: bytes, at: int = 0, producer: BatchProducer | None = None) -> bytes:
    records = [NewRecord(value, timestamp_ms=1) for value in values]
    return encode_batch(records, base_offset=at, producer=producer or BatchProducer())


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """What librdkafka reads of partition 0."""
    given = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(given | {"isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append(message.value())


def no_longer_mirrored(cluster: Cluster, topic: str) -> None:
    Configs(cluster).change(ResourceKind.TOPIC, topic, {}, unset=[MIRROR_SOURCE])


def test_ids_of_the_source_are_not_taken_for_those_of_the_target(target_broker, target):
    create_mirrored(target, "ids")
    with RawConnection(target_broker.bootstrap) as raw:
        asked = {"transactional_id": None, "transaction_timeout": 1000}
        newest = raw.request(ApiKey.INIT_PRODUCER_ID, 1, asked).producer_id
    for offset in range(IDS):
        producer = BatchProducer(newest + offset, epoch=0, base_sequence=0)
        assert append(target, "ids", offset, batch(b"source", at=offset, producer=producer)).error is None
    assert end_mirroring(target, "ids", 0) == IDS + 1
    no_longer_mirrored(target, "ids")
    producer = KafkaProducer({"bootstrap.servers": target_broker.bootstrap, "enable.idempotence": True})
    producer.produce("ids", b"target", partition=0)
    assert producer.flush(30) == 0
    assert values(target_broker.bootstrap, "ids") == [b"source"] * IDS + [b"target"]


def test_the_log_of_the_target_is_that_of_the_source(source, target_broker, target):
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic("same", 1)
    fill(source.bootstrap, "same")
    create_mirrored(target, "same")
    log = Mirror(source.bootstrap, target, "same").run()
    assert log.error is None
    expected = log_of(source.bootstrap, "same")
    assert log_of(target_broker.bootstrap, "same") == expected
    for isolation in ("read_uncommitted", "read_committed"):
        read = values(target_broker.bootstrap, "same", isolation)
        assert read == values(source.bootstrap, "same", isolation)
        assert read
    target_broker.stop()
    target_broker.start()
    assert log_of(target_broker.bootstrap, "same") == expected
    assert values(target_broker.bootstrap, "same") == values(source.bootstrap, "same")


def fill(bootstrap: str, topic: str) -> None:
    """Plain, compressed and idempotent batches, and transactions that were committed and aborted."""
    for codec in ("none", "lz4", "zstd"):
        plain = KafkaProducer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for index in range(500):
            plain.produce(topic, f"{codec}-{index}".encode() * 20, partition=0)
        assert plain.flush(60) == 0
    with transactional(bootstrap, f"writes-{topic}") as producer:
        for index in range(6):
            producer.begin_transaction()
            producer.send(topic, f"in-{index}".encode(), partition=0)
            producer.abort_transaction() if index % 2 else producer.commit_transaction()


def test_a_transaction_that_is_open_at_the_source_is_open_at_the_target(source, target_broker, target):
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic("open", 1)
    create_mirrored(target, "open")
    mirror = Mirror(source.bootstrap, target, "open")
    with transactional(source.bootstrap, "open") as producer:
        producer.begin_transaction()
        producer.send("open", b"first", partition=0)
        producer.flush()
        mirror.run()
        assert values(target_broker.bootstrap, "open") == []
        assert values(target_broker.bootstrap, "open", "read_uncommitted") == [b"first"]
        producer.commit_transaction()
        mirror.run()
        assert values(target_broker.bootstrap, "open") == [b"first"]
        producer.begin_transaction()
        producer.send("open", b"never ended", partition=0)
        producer.flush()
        mirror.run()
        end = end_mirroring(target, "open", 0)
        assert end_mirroring(target, "open", 0) == end
        producer.abort_transaction()
    no_longer_mirrored(target, "open")
    with transactional(target_broker.bootstrap, "open") as producer:
        producer.begin_transaction()
        producer.send("open", b"of the target", partition=0)
        producer.commit_transaction()
    assert values(target_broker.bootstrap, "open") == [b"first", b"of the target"]
    assert values(target_broker.bootstrap, "open", "read_uncommitted") == [b"first", b"never ended", b"of the target"]


def test_where_the_log_ends_elsewhere_nothing_is_appended(target_broker, target):
    create_mirrored(target, "compared")
    assert append(target, "compared", 0, batch(b"a", b"b")).end_offset == 2
    for expected in (0, 1, 3, -1):
        log = append(target, "compared", expected, batch(b"c", at=2))
        assert isinstance(log.error, OffsetOutOfRangeError)
        assert log.end_offset == 2
    assert append(target, "compared", 2, batch(b"c", at=2)) == (3, 3, None)
    assert values(target_broker.bootstrap, "compared") == [b"a", b"b", b"c"]


def test_what_compaction_has_left_of_the_source_is_mirrored(source, target_broker, target):
    """And to compact the target meanwhile changes nothing of that."""
    config = {"cleanup.policy": "compact", "segment.bytes": "2000"}
    create_mirrored(target, "compacted", **config)
    mirror = Mirror(source.bootstrap, target, "compacted", max_bytes=1000)
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic("compacted", 1, config=config)
        for rounds in range(3):
            producer = SyncProducer(cluster)
            for number in range(100):
                key = b"%d" % (number % 7)
                producer.send("compacted", 0, [NewRecord(b"%d in %d" % (number, rounds), key=key)])
            compact(source)
            assert mirror.run().error is None
            compact(target_broker)
    read = values(target_broker.bootstrap, "compacted")
    assert read[-7:] == values(source.bootstrap, "compacted")[-7:] == [b"%d in 2" % number for number in range(93, 100)]
    target_broker.kill()
    target_broker.start()
    assert values(target_broker.bootstrap, "compacted") == read


def test_gaps_of_compaction_are_mirrored_as_they_are(source, target_broker, target):
    config = {"cleanup.policy": "compact", "segment.bytes": "2000"}
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic("thinned", 1, config=config)
        producer = SyncProducer(cluster)
        for number in range(300):
            producer.send("thinned", 0, [NewRecord(b"%d" % number, key=b"%d" % (number % 7))])
    compact(source)
    create_mirrored(target, "thinned")
    assert Mirror(source.bootstrap, target, "thinned", max_bytes=500).run().error is None
    expected = log_of(source.bootstrap, "thinned")
    assert len(expected) < 200
    assert log_of(target_broker.bootstrap, "thinned") == expected
    target_broker.kill()
    target_broker.start()
    assert log_of(target_broker.bootstrap, "thinned") == expected


def compact(broker: BrokerProcess) -> None:
    with urllib.request.urlopen(change_request(broker, "maintenance/compaction"), timeout=60) as answer:
        assert [one["error"] for one in json.load(answer)["partitions"] if one["error"]] == []


def test_a_large_request_is_appended_in_pieces(target_broker, target):
    """Others are served between them; a batch above max.message.bytes stays as it is at the source."""
    create_mirrored(target, "large", partitions=2, max_message_bytes="1000")
    sizes = [300_000] * 10 + [3_000_000] + [10] * 1000
    records = b"".join(batch(b"x" * size, at=offset) for offset, size in enumerate(sizes))
    logs = append_mirrored(target, [MirroredAppend("large", index, 0, records) for index in range(2)])
    assert list(logs.values()) == [(len(sizes), len(sizes), None)] * 2
    for index in range(2):
        assert b"".join(log_of(target_broker.bootstrap, "large", index)) == with_epoch_0(records)


def with_epoch_0(records: bytes) -> bytes:
    return b"".join(data for _, data in batches(records))


def test_two_writers_race_and_nothing_is_lost_or_doubled(source, target_broker, target):
    with Cluster(source.bootstrap) as cluster:
        Admin(cluster).create_topic("raced", 1)
    fill(source.bootstrap, "raced")
    create_mirrored(target, "raced")

    def run(_: int) -> None:
        with Cluster(target_broker.bootstrap) as own:
            Mirror(source.bootstrap, own, "raced").run()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert log_of(target_broker.bootstrap, "raced") == log_of(source.bootstrap, "raced")


def test_a_log_begins_where_that_of_the_source_begins_and_leaves_out_what_that_leaves_out(target_broker, target):
    create_mirrored(target, "gaps")
    assert append(target, "gaps", 0, batch(b"a", at=700), log_start_offset=700) == (701, 701, None)
    assert append(target, "gaps", 701, batch(b"b", at=750) + batch(b"c", at=800)) == (801, 801, None)
    assert append(target, "gaps", 801, batch(b"d", at=900), log_start_offset=850) == (901, 901, None)
    with SimpleConsumer(target_broker.bootstrap) as consumer:
        assert consumer.earliest("gaps", 0) == 700
    assert values(target_broker.bootstrap, "gaps") == [b"a", b"b", b"c", b"d"]
    target_broker.kill()
    target_broker.start()
    assert values(target_broker.bootstrap, "gaps") == [b"a", b"b", b"c", b"d"]


def test_others_may_not_write(target_broker, target):
    create_mirrored(target, "guarded")
    sentence = "guarded is written by the mirror east alone: write at its source, or switch over to this cluster first"
    producer = Producer({"broker_list": target_broker.bootstrap})
    with pytest.raises(BrokerError, match=sentence):
        producer.send("guarded", b"no", partition=0).result(30)
    producer.close()
    failed = []
    plain = KafkaProducer({"bootstrap.servers": target_broker.bootstrap})
    plain.produce("guarded", b"no", partition=0, on_delivery=lambda error, _: failed.append(error.code()))
    plain.flush(30)
    assert failed == [POLICY_VIOLATION]
    assert values(target_broker.bootstrap, "guarded", "read_uncommitted") == []


def test_a_transaction_with_a_mirrored_partition_ends(target_broker, target):
    """The partition is added, its records are refused, and no marker is appended."""
    create_mirrored(target, "marked")
    Admin(target).create_topic("beside", 1)
    with transactional(target_broker.bootstrap, "marks") as producer:
        producer.begin_transaction()
        producer.send("beside", b"yes", partition=0)
        with pytest.raises(BrokerError, match="by the mirror east alone"):
            producer.send("marked", b"no", partition=0).result(30)
        producer.abort_transaction()
    assert append(target, "marked", 0, batch(b"first")) == (1, 1, None)


def test_only_mirrored_topics_are_appended_to(target_broker, target):
    Admin(target).create_topic("plain", 1)
    log = append(target, "plain", 0, batch(b"no"))
    assert isinstance(log.error, BrokerError)
    assert log.error.broker_code == POLICY_VIOLATION
    assert "plain is not mirrored: it has no mirror.source" in str(log.error)
    with pytest.raises(BrokerError, match="plain is not mirrored"):
        end_mirroring(target, "plain", 0)
    assert isinstance(append(target, "unknown", 0, batch(b"no")).error, UnknownTopicError)
    Configs(target).change(ResourceKind.TOPIC, "plain", MIRRORED)
    assert append(target, "plain", 0, batch(b"yes")) == (1, 1, None)
    no_longer_mirrored(target, "plain")
    assert values(target_broker.bootstrap, "plain") == [b"yes"]


def test_behind_the_end_a_mirror_goes_on_that_knows_of_it(target_broker, target):
    create_mirrored(target, "ended")
    append(target, "ended", 0, batch(b"a"))
    assert end_mirroring(target, "ended", 0) == 2
    assert isinstance(append(target, "ended", 1, batch(b"b", at=1)).error, OffsetOutOfRangeError)
    no_longer_mirrored(target, "ended")
    assert end_mirroring(target, "ended", 0) == 2
    Configs(target).change(ResourceKind.TOPIC, "ended", MIRRORED)
    assert append(target, "ended", 2, batch(b"b", at=2)) == (3, 3, None)
    no_longer_mirrored(target, "ended")
    assert values(target_broker.bootstrap, "ended") == [b"a", b"b"]


def test_the_end_of_another_mirroring_is_mirrored_itself(source, target_broker, target):
    """As it comes along where a topic is switched back."""
    with Cluster(source.bootstrap) as cluster:
        create_mirrored(cluster, "there")
        append(cluster, "there", 0, batch(b"a"))
        assert end_mirroring(cluster, "there", 0) == 2
        no_longer_mirrored(cluster, "there")
    create_mirrored(target, "there")
    assert Mirror(source.bootstrap, target, "there").run() == (2, 2, None)
    assert append(target, "there", 2, batch(b"b", at=2)) == (3, 3, None)
    assert end_mirroring(target, "there", 0) == 4


def test_the_property_is_shown_where_it_is_set(target_broker, target):
    create_mirrored(target, "shown")
    Admin(target).create_topic("not-shown", 1)
    configs = Configs(target)
    assert {one.name: one.value for one in configs.describe(ResourceKind.TOPIC, "shown")}[MIRROR_SOURCE] == "east"
    assert MIRROR_SOURCE not in {one.name for one in configs.describe(ResourceKind.TOPIC, "not-shown")}
    assert can_be_followed_into(target)
    assert ApiKey.APPEND_MIRRORED not in told(target_broker.bootstrap)


def told(bootstrap: str) -> set[int]:
    with RawConnection(bootstrap) as raw:
        return {one.api_key for one in raw.request(ApiKey.API_VERSIONS, 0, {}).api_keys}


def test_each_partition_has_an_answer_of_its_own(target):
    create_mirrored(target, "several", partitions=3)
    asked = [MirroredAppend("several", index, index, batch(b"a", at=index)) for index in range(3)]
    logs = append_mirrored(target, [*asked, MirroredAppend("several", 7, 0, b"")])
    assert logs["several", 0] == (1, 1, None)
    assert [log.end_offset for log in logs.values()] == [1, 0, 0, -1]
    assert isinstance(logs["several", 1].error, OffsetOutOfRangeError)
    assert isinstance(logs["several", 7].error, UnknownTopicError)


@pytest.mark.parametrize("records", [b"x" * 70, batch(b"a")[:-1] + b"?", batch(b"a") + b"x" * 70])
def test_bytes_that_are_no_batches_are_refused(target, records):
    topic = f"bytes-{len(records)}-{records[0]}"
    create_mirrored(target, topic)
    assert append(target, topic, 0, records).error is not None
