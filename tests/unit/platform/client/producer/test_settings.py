"""Properties of a producer: documented names, keywords, synonyms, and what is refused."""

import pytest

from millrace.client.producer import JsonEncoder, StringEncoder
from millrace.client.producer.plugins import BytesEncoder
from millrace.client.producer.settings import parse_settings
from millrace.errors import InvalidConfigError, InvalidRecordError
from millrace.records.compression import Codec

BROKERS = {"broker.list": "localhost:9092"}


def test_documented_names_and_keywords_mean_the_same():
    documented, _ = parse_settings(
        BROKERS | {"producer.type": "async", "queue.time": "20", "compression.codec": "2"}, {}
    )
    keywords, _ = parse_settings(
        {}, {"broker_list": "localhost:9092", "producer_type": "async", "queue_time": 20, "compression_codec": "snappy"}
    )
    assert documented.queue_time == keywords.queue_time == 20.0
    assert documented.codec is keywords.codec is Codec.SNAPPY
    assert not documented.is_sync


def test_successors_names_are_known():
    settings, _ = parse_settings({"bootstrap.servers": "a:1", "linger.ms": 3, "acks": 1}, {"enable_idempotence": False})
    assert (settings.broker_list, settings.queue_time, settings.required_acks) == ("a:1", 3.0, 1)


@pytest.mark.parametrize("name", ["zk.connect", "zookeeper.connect"])
def test_zookeeper_goes_by_both_of_its_names(name):
    assert parse_settings({name: "z:2181"}, {})[0].zk_connect == "z:2181"


def test_two_names_of_one_property_may_say_the_same():
    settings, _ = parse_settings({"zk.connect": "z:2181", "zookeeper.connect": "z:2181"}, {"zk_connect": "z:2181"})
    assert settings.zk_connect == "z:2181"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"queue.tme": 1}, "unknown property queue.tme"),
        ({"queue.size": 0}, "Invalid value 0 for configuration queue.size: Value must be at least 1"),
        ({"compression.codec": "brotli"}, "brotli for configuration compression.codec"),
        (
            {"producer.type": "fast"},
            "Invalid value fast for configuration producer.type: String must be one of: sync, async",
        ),
        ({"bootstrap.servers": "b:1"}, "broker.list is given twice"),
        ({"zk.connect": "z:1", "zookeeper.connect": "z:2"}, "zk.connect is given twice, with different values"),
        ({"zk.connect": "b:1"}, "one of broker.list and zk.connect"),
        ({"enable.idempotence": True, "acks": 1}, "enable.idempotence needs acks=all"),
        ({"max.in.flight": 6}, "at most 5"),
        ({"transactional.id": "t", "acks": 1}, "transactional.id needs enable.idempotence=true and acks=all"),
        ({"transactional.id": "t", "enable.idempotence": False}, "transactional.id needs enable.idempotence=true"),
        ({"partitioner": "nowhere.Nothing"}, "partitioner=nowhere.Nothing: no such class"),
    ],
)
def test_what_does_not_fit_is_named(properties, message):
    with pytest.raises(InvalidConfigError, match=message):
        parse_settings(BROKERS | properties, {})


def test_neither_brokers_nor_zookeeper():
    with pytest.raises(InvalidConfigError, match=r"one of broker\.list and zk\.connect"):
        parse_settings({}, {})


def test_a_class_goes_by_its_name_or_as_itself():
    for value in ("millrace.client.producer.JsonEncoder", JsonEncoder, JsonEncoder()):
        _, plugins = parse_settings(BROKERS | {"serializer.class": value}, {})
        assert isinstance(plugins["encoder"], JsonEncoder)


def test_encoders():
    assert JsonEncoder().encode({"ä": [1, None]}) == '{"ä":[1,null]}'.encode()
    assert StringEncoder("latin-1").encode("ä") == b"\xe4"
    assert BytesEncoder().encode(memoryview(b"ab")) == b"ab"


@pytest.mark.parametrize(("encoder", "data"), [(BytesEncoder(), "x"), (StringEncoder(), b"x"), (JsonEncoder(), {1j})])
def test_encoders_name_what_they_do_not_take(encoder, data):
    with pytest.raises(InvalidRecordError, match=type(data).__name__):
        encoder.encode(data)
