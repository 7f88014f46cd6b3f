"""`Producer` against a broker in a process of its own."""

import os
import random
import subprocess
import sys
import threading

import pytest

from millrace import Producer, ProducerRecord
from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.client.connection import CLIENT_VERSIONS
from millrace.client.producer import CallbackHandler, JsonEncoder, RandomPartitioner, StringEncoder
from millrace.client.producer.plugins import partition_for_key
from millrace.errors import (
    DeliveryTimeoutError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidRequestError,
    ProducerClosedError,
    QueueFullError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from millrace.records.record import decode_records
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey, VersionRange


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("producer")) as process:
        yield process


@pytest.fixture
def topic(served, request):
    name = request.node.name.replace("[", "-").replace("]", "")
    with Cluster(served.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 3)
    return name


def records_in(bootstrap, topic, partition):
    with Cluster(bootstrap) as cluster:
        consumer, offset, records = SimpleConsumer(cluster), 0, []
        end = consumer.latest(topic, partition)
        while offset < end:
            fetched = decode_records(consumer.fetch(topic, partition, offset).records)
            records += [record for record in fetched if record.offset >= offset]
            offset = records[-1].offset + 1
        return records


def test_sync_returns_where_the_record_lies(served, topic):
    with Producer(broker_list=served.bootstrap) as producer:
        report = producer.send(topic, b"v", b"k", headers=(("h", None),), timestamp_ms=5).result()
    (record,) = records_in(served.bootstrap, topic, report.partition)
    assert (record.offset, record.timestamp_ms, record.key, record.value) == (report.offset, 5, b"k", b"v")
    assert record.headers == (("h", None),)
    assert report.partition == partition_for_key(b"k", 3)


def test_one_or_many(served, topic):
    with Producer({"broker.list": served.bootstrap}) as producer:
        one = producer.send(ProducerRecord(topic, b"0", partition=1))
        many = producer.send([ProducerRecord(topic, b"%d" % number, partition=1) for number in range(1, 5)])
    assert [each.result().offset for each in (one, *many)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_async_batches_keep_their_order_in_every_codec(served, topic, codec):
    reports = []
    with Producer(
        broker_list=served.bootstrap, producer_type="async", compression_codec=codec, batch_size=50
    ) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, partition=0, on_delivery=reports.append)
        producer.flush()
        assert [report.offset for report in reports] == list(range(1000))
    assert [record.value for record in records_in(served.bootstrap, topic, 0)] == [b"%d" % n for n in range(1000)]


def test_records_without_a_key_fill_batches_and_reach_every_partition(served, topic):
    with Producer(broker_list=served.bootstrap, producer_type="async", batch_size=10, queue_time=1000) as producer:
        deliveries = [producer.send(topic, b"v") for _ in range(600)]
        producer.flush()
    assert {delivery.result().partition for delivery in deliveries} == {0, 1, 2}


def test_encoders_and_partitioners_of_ones_own(served, topic):
    class Last:
        def partition(self, key, num_partitions):
            return num_partitions - 1

    with Producer(
        broker_list=served.bootstrap, encoder=JsonEncoder(), key_encoder=StringEncoder(), partitioner=Last()
    ) as producer:
        assert producer.send(topic, {"a": 1}, "ключ").result().partition == 2
        assert producer.send(topic, None, None).result().partition == 2
    (first, second) = records_in(served.bootstrap, topic, 2)
    assert (first.key, first.value, second.value) == ("ключ".encode(), b'{"a":1}', None)
    with Producer(broker_list=served.bootstrap, partitioner=RandomPartitioner) as producer:
        assert producer.send(topic, b"v", b"k").result().partition == partition_for_key(b"k", 3)


def test_many_threads_share_a_producer(served, topic):
    with Producer(broker_list=served.bootstrap, producer_type="async", queue_size=100) as producer:

        def send(thread):
            for number in range(500):
                producer.send(topic, b"%d-%d" % (thread, number), partition=thread % 3)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [record.value for index in range(3) for record in records_in(served.bootstrap, topic, index)]
    for thread in range(6):
        mine = [value for value in values if value.startswith(b"%d-" % thread)]
        assert mine == [b"%d-%d" % (thread, number) for number in range(500)]


def test_what_cannot_be_sent_is_told_where_it_is_sent(served, topic):
    with Producer(broker_list=served.bootstrap) as producer:
        with pytest.raises(InvalidRecordError, match="str is not bytes"):
            producer.send(topic, "text")
        with pytest.raises(InvalidConfigError, match="has no partition 3; it has 3"):
            producer.send(topic, b"v", partition=3)
        with pytest.raises(InvalidRecordError, match="no header"):
            producer.send(topic, b"v", headers=((b"h", b"v"),))
        with pytest.raises(InvalidConfigError, match="partition '0' is no whole number"):
            producer.send(topic, b"v", partition="0")
        with pytest.raises(InvalidRequestError, match="is no text in UTF-8"):
            producer.send("\udcff", b"v")
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(2_000_000), partition=0)
        assert producer.send(topic, b"after", partition=0).result().offset == 0  # under the next epoch
    with pytest.raises(ProducerClosedError):
        producer.send(topic, b"late")


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp_ms": 1.5},
        {"timestamp_ms": "1"},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
        {"headers": (("\udcff", b"v"),)},
    ],
)
def test_a_record_that_can_not_be_encoded_takes_no_other_with_it(served, topic, wrong):
    with Producer(broker_list=served.bootstrap, producer_type="async", queue_time=60_000) as producer:
        deliveries = [producer.send(topic, b"before", partition=0)]
        with pytest.raises(InvalidRecordError):
            producer.send(topic, b"wrong", partition=0, **wrong)
        with pytest.raises(InvalidRecordError):
            producer.send(topic, b"wrong", partition=1, **wrong)  # the first of its batch
        deliveries += [producer.send(topic, b"after", partition=partition) for partition in (0, 1)]
        producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == [0, 1, 0]


def test_a_partitioner_that_gives_no_whole_number_is_told(served, topic):
    class Halves:
        def partition(self, key, num_partitions):
            return num_partitions / 2

    with (
        Producer(broker_list=served.bootstrap, partitioner=Halves()) as producer,
        pytest.raises(InvalidConfigError, match=r"partition 1\.5 is no whole number"),
    ):
        producer.send(topic, b"v")


def test_a_closed_producer_creates_no_topic(served, topic):
    with Producer(broker_list=served.bootstrap) as producer:
        producer.send(topic, b"v")
    with pytest.raises(ProducerClosedError):
        producer.send(f"{topic}-late", b"v")
    with Cluster(served.bootstrap) as cluster:
        assert f"{topic}-late" not in Admin(cluster).topics()


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_is_too_large_is_split_and_one_record_that_is_fails_alone(served, codec, is_idempotent):
    topic = f"narrow-{codec}-{is_idempotent}"
    with Cluster(served.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1, config={"max.message.bytes": "2000"})
    chance, told = random.Random(1), []
    values = [chance.randbytes(5000 if number == 300 else 100) for number in range(600)]
    with Producer(
        broker_list=served.bootstrap,
        producer_type="async",
        queue_time=60_000,
        batch_size=500,
        max_in_flight=1 if not is_idempotent else 5,
        enable_idempotence=is_idempotent,
        compression_codec=codec,
    ) as producer:
        deliveries = [producer.send(topic, value, partition=0, on_delivery=told.append) for value in values]
        producer.flush()
        assert len(told) == 600
    failed = [number for number, delivery in enumerate(deliveries) if delivery.report().error is not None]
    assert failed == [300]
    with pytest.raises(RecordTooLargeError, match=f"{topic}-0"):
        deliveries[300].result()
    found = records_in(served.bootstrap, topic, 0)
    assert [record.value for record in found] == [value for value in values if len(value) == 100]
    reports = [delivery.report() for number, delivery in enumerate(deliveries) if number != 300]
    assert [report.offset for report in reports] == [record.offset for record in found]


def test_a_codec_that_the_broker_is_too_old_for_is_refused_at_once(served, topic, monkeypatch):
    monkeypatch.setitem(CLIENT_VERSIONS, ApiKey.PRODUCE, VersionRange(3, 6))  # as with a broker from before zstd
    with Producer(broker_list=served.bootstrap, compression_codec="zstd") as producer:
        with pytest.raises(UnsupportedCodecError, match="does not take zstd"):
            producer.send(topic, b"v", partition=0)
        monkeypatch.undo()
    with Producer(broker_list=served.bootstrap, compression_codec="zstd") as producer:
        assert producer.send(topic, b"v", partition=0).result().offset == 0


def test_a_full_queue_drops_at_once_or_after_a_while(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        settings = {"broker_list": broker.bootstrap, "producer_type": "async", "queue_size": 5}
        producers = [Producer(settings, queue_enqueue_timeout_ms=timeout_ms) for timeout_ms in (0, 20)]
        for producer in producers:
            producer.send("t", b"first").result()
        broker.stop()
        for producer in producers:
            for _ in range(5):
                producer.send("t", b"v")
            with pytest.raises(QueueFullError, match="5 records"):
                producer.send("t", b"v")
            with pytest.raises(DeliveryTimeoutError, match="5 records"):
                producer.close(timeout_s=0.1)


def test_every_report_is_called_whatever_another_one_raises(served, topic):
    reports = []

    def told(report):
        reports.append(report.offset)
        raise ValueError("the application's own")

    with Producer(broker_list=served.bootstrap, producer_type="async", queue_time=60_000) as producer:
        for _ in range(3):
            producer.send(topic, b"v", partition=0, on_delivery=told)
        producer.flush()
        assert reports == [0, 1, 2]


@pytest.mark.parametrize("has_handlers", [False, True])
def test_what_a_callback_sends_does_not_wait_for_room_that_it_makes_itself(served, topic, has_handlers):
    raised = []

    def send_more(*_):
        try:
            for _ in range(3):
                producer.send(topic, b"more", partition=0)
        except QueueFullError as error:
            raised.append(str(error))

    class Handler(CallbackHandler):
        def before_sending_data(self, events):
            if not raised:
                send_more()
            return events

    settings = {"broker_list": served.bootstrap, "producer_type": "async", "queue_size": 2, "queue_time": 0}
    if has_handlers:
        settings["callback_handler"] = Handler()
    with Producer(settings) as producer:
        producer.send(topic, b"v", partition=0, **({} if has_handlers else {"on_delivery": send_more}))
        producer.flush()
        assert "a callback can't wait for room" in raised[0]


def test_what_a_broker_does_not_take_in_time_is_reported(tmp_path):
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Producer(
            broker_list=broker.bootstrap, producer_type="async", delivery_timeout_ms=3000, retry_backoff_ms=20
        ) as producer,
    ):
        while producer.send("t", b"first").report().error is not None:
            pass
        broker.kill()
        reports = []
        delivery = producer.send("t", b"v", on_delivery=reports.append)
        with pytest.raises(DeliveryTimeoutError, match="not acknowledged within 3000 ms"):
            delivery.result()
        producer.flush()
        assert reports == [delivery.report()]


def test_a_flush_waits_for_callbacks_too(served, topic):
    reports = []

    def remember(report):
        threading.Event().wait(0.2)  # the record has its report by now
        reports.append(report)

    with Producer(broker_list=served.bootstrap, producer_type="async") as producer:
        delivery = producer.send(topic, b"v", on_delivery=remember)
        delivery.result()
        producer.flush()
        assert reports == [delivery.report()]


def test_records_survive_the_brokers_death_once_and_in_order(tmp_path):
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Producer(broker_list=broker.bootstrap, producer_type="async", batch_size=20, retry_backoff_ms=20) as producer,
    ):
        reached = threading.Event()
        deliveries = []
        for number in range(6000):
            if number in (2000, 4000):
                reached.clear()
            deliveries.append(producer.send("t", b"%d" % number, partition=0, on_delivery=lambda _: reached.set()))
            if number in (2000, 4000):
                reached.wait()
                broker.kill()
                broker.start()
        producer.flush()
        assert [record.value for record in records_in(broker.bootstrap, "t", 0)] == [b"%d" % n for n in range(6000)]
        assert all(each.result().error is None for each in deliveries)


class Hooks(CallbackHandler):
    def __init__(self):
        self.calls = []

    def before_enqueue(self, event):
        return None if event.value == b"unwanted" else event._replace(value=event.value.upper())

    def after_enqueue(self, event, added):
        self.calls.append(("enqueued", event.value, added))

    def after_dequeuing_existing_data(self, event):
        if event is None:  # the batch is about to go
            return ()
        self.calls.append(("dequeued", event.value))
        return [event, event._replace(value=b"echo")] if event.value == b"TWO" else [event]

    def before_sending_data(self, events):
        self.calls.append(("sending", len(events)))
        return events

    def last_batch_before_close(self):
        return [ProducerRecord(self.topic, b"goodbye", partition=0)]

    def on_failure(self, events, error):
        self.calls.append(("failed", [event.value for event in events], type(error).__name__))

    def close(self):
        self.calls.append(("closed",))


def test_callback_handlers_see_every_stage(served, topic):
    hooks = Hooks()
    hooks.topic = topic
    with Producer(broker_list=served.bootstrap, producer_type="async", callback_handler=hooks) as producer:
        producer.send(topic, b"one", partition=0)
        producer.send([ProducerRecord(topic, b"unwanted"), ProducerRecord(topic, b"two", partition=0)])
        producer.send(topic, b"nowhere", partition=9)
        producer.flush()
    assert [record.value for record in records_in(served.bootstrap, topic, 0)] == [b"ONE", b"TWO", b"echo", b"goodbye"]
    assert ("enqueued", b"ONE", True) in hooks.calls
    assert ("dequeued", b"ONE") in hooks.calls
    assert ("failed", [b"NOWHERE"], "InvalidConfigError") in hooks.calls
    assert hooks.calls[-1] == ("closed",)


def test_an_event_handler_gets_the_batches(served, topic):
    class Collector:
        def __init__(self):
            self.batches = []

        def handle(self, events):
            self.batches.append([event.value for event in events])

    collector = Collector()
    with Producer(
        broker_list=served.bootstrap, producer_type="async", event_handler=collector, batch_size=4, queue_time=60_000
    ) as producer:
        for number in range(10):
            producer.send(topic, number)
        producer.flush()
    assert [value for batch in collector.batches for value in batch] == list(range(10))
    assert max(map(len, collector.batches)) == 4
    assert records_in(served.bootstrap, topic, 0) == []


def test_flush_hands_over_what_waits_for_more(served, topic):
    gathered = threading.Event()

    class Gathering(CallbackHandler):
        def after_dequeuing_existing_data(self, event):
            gathered.set()
            return () if event is None else (event,)

    with Producer(
        broker_list=served.bootstrap, producer_type="async", callback_handler=Gathering(), queue_time=3_600_000
    ) as producer:
        producer.send(topic, b"v", partition=0)
        assert gathered.wait(60)
        producer.flush(60)
        assert len(records_in(served.bootstrap, topic, 0)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_refused_and_the_parent_goes_on(served, topic):
    code = f"""
import os
from millrace import Producer
from millrace.client.producer import CallbackHandler
from millrace.errors import ProducerClosedError
producer = Producer(broker_list="{served.bootstrap}")
producer.send("{topic}", b"before", partition=0)
handled = Producer(broker_list="{served.bootstrap}", producer_type="async", callback_handler=CallbackHandler())
child = os.fork()
if not child:
    for each, topic in ((producer, "{topic}"), (handled, "{topic}"), (producer, "{topic}-new")):
        try:
            each.send(topic, b"child", partition=0)
        except ProducerClosedError as error:
            with Producer(broker_list="{served.bootstrap}") as own:
                own.send("{topic}", str(error).encode(), partition=1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send("{topic}", b"after", partition=0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert [record.value for record in records_in(served.bootstrap, topic, 0)] == [b"before", b"after"]
    told = records_in(served.bootstrap, topic, 1)
    assert [b"before a fork" in record.value for record in told] == [True] * 3
    with Cluster(served.bootstrap) as cluster:
        assert f"{topic}-new" not in Admin(cluster).topics()  # the parent's connection was not used


def test_what_was_sent_is_delivered_at_the_interpreters_exit(served, topic):
    code = f"""
import gc
from millrace import Producer
def send(partition):
    producer = Producer(broker_list="{served.bootstrap}", producer_type="async", queue_time=60000)
    for number in range(100):
        producer.send("{topic}", b"%d" % number, partition=partition)
    return producer
kept = send(0)
send(1)
gc.collect()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert [len(records_in(served.bootstrap, topic, partition)) for partition in (0, 1)] == [100, 100]
