"""What a person at Python's prompt finds: names, keywords, and words that say what to type instead."""

import subprocess
import sys

import pytest

import millrace
from millrace import JsonEncoder, Producer, SimpleConsumer, StringEncoder, read_topic
from millrace.client.cluster import Cluster
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.producer.plugins import BytesEncoder
from millrace.errors import InvalidConfigError, InvalidRecordError

WITHOUT_ARROW = """
import sys

for name in ("numpy", "pyarrow"):
    sys.modules[name] = None  # as if it were not installed
from millrace import *
from millrace.errors import SetupError

try:
    read_topic("t", "127.0.0.1:1")
except SetupError as error:
    print(error)
"""


def test_dir_shows_the_clients_and_nothing_else():
    assert dir(millrace) == sorted([*millrace.__all__, "__version__"])
    assert {"Producer", "ProducerRecord", "SimpleConsumer", "Cluster", "JsonEncoder", "read_topic"} <= {*dir(millrace)}
    for name in millrace.__all__:
        assert getattr(millrace, name).__doc__.strip(), name


def test_all_names_are_there_without_arrow_and_the_call_that_needs_it_says_so():
    command = [sys.executable, "-c", WITHOUT_ARROW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("read_topic needs the extra 'tables': pip install 'millrace-log[tables]'")


@pytest.mark.parametrize("name", ["bootstrap_servers", "broker_list", "metadata_broker_list"])
def test_readers_take_what_the_producer_takes(name):
    properties = {name: "127.0.0.1:1", "client_id": "me", "request_timeout_ms": 1}
    SimpleConsumer(**properties).close()
    Producer(**properties).close()


READERS = {"SimpleConsumer": SimpleConsumer, "read_topic": lambda **given: read_topic("t", **given)}
SLIPS = [
    ({"bootstrap_server": "127.0.0.1:1"}, "unknown property bootstrap.server; did you mean bootstrap.servers?"),
    ({"bootstrap_servers": "a:1", "clientid": "me"}, "unknown property clientid; did you mean client.id?"),
    ({"bootstrap_servers": "a:1", "xyz": 1}, "unknown property xyz"),
    ({"bootstrap_servers": "a:1", "broker_list": "b:1"}, "broker.list is given twice, with different values"),
    ({"bootstrap_servers": "a:1", "ssl_key_passwort": "x"}, "ssl.key.passwort"),
    ({"bootstrap_servers": "a:1", "request_timeout_ms": 0}, "Value must be at least 1"),
    ({}, 'which brokers? bootstrap_servers="HOST:PORT" is needed'),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("given", "words"), SLIPS, ids=str)
def test_a_slip_is_named(reader, given, words):
    with pytest.raises(InvalidConfigError) as refused:
        READERS[reader](**given)
    assert words in str(refused.value)


def test_a_slip_in_other_clients_properties_is_named_in_the_same_way():
    with pytest.raises(InvalidConfigError, match=r"unknown property compresion.type; did you mean compression.type\?"):
        Producer(bootstrap_servers="127.0.0.1:1", compresion_type="lz4")
    with pytest.raises(InvalidConfigError, match=r"unknown property groupid; did you mean group.id\?"):
        ConsumerConfig.from_properties({"groupid": "g", "zookeeper.connect": "a:1"})


def test_a_cluster_that_is_given_takes_no_properties():
    with Cluster("127.0.0.1:1") as cluster, pytest.raises(InvalidConfigError, match="client_id: the cluster that is"):
        SimpleConsumer(cluster, client_id="me")


UNENCODED = [({"a": 1}, JsonEncoder), ([1], JsonEncoder), (1, JsonEncoder), (1.5, JsonEncoder), ("text", StringEncoder)]


@pytest.mark.parametrize("option", ["encoder", "key_encoder"])
@pytest.mark.parametrize(("value", "encoder"), UNENCODED, ids=str)
def test_what_is_not_bytes_names_an_encoder_that_takes_it(option, value, encoder):
    with pytest.raises(InvalidRecordError) as refused:
        BytesEncoder(option).encode(value)
    name, kind = encoder.__name__, type(value).__name__
    assert str(refused.value) == (
        f"{kind} is not bytes: Producer(…, {option}={name}) sends it, after `from millrace import {name}`"
    )
    assert encoder().encode(value)


def test_the_encoder_of_text_names_the_one_of_other_values():
    with pytest.raises(InvalidRecordError, match="dict is not text: JsonEncoder encodes other values, too"):
        StringEncoder().encode({})
