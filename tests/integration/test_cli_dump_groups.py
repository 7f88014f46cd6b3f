"""`millrace dump` on what a broker keeps of groups, producers and aborted transactions."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.client import Admin, Cluster
from millrace.testing.broker import BrokerProcess

pytestmark = pytest.mark.usefixtures("warm_path")
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder after a clean stop: a group of each protocol, an aborted and a committed transaction."""
    folder = tmp_path_factory.mktemp("dump") / "data"
    with BrokerProcess(folder, properties=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "id"})
        producer.init_transactions(60)
        consumers = [consume(broker.bootstrap, protocol) for protocol in ("classic", "consumer")]
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce("events", b"v", b"k", 0)
            producer.flush(60)  # an abort would forget what has not been sent
            producer.send_offsets_to_transaction(
                [TopicPartition("events", 0, 7)], consumers[0].consumer_group_metadata(), 60
            )
            end(60)
        for consumer in consumers:
            consumer.close()
    return folder


def consume(bootstrap, protocol):
    """A member of a group that has committed."""
    settings = {"group.id": protocol, "group.protocol": protocol, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["events"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("events", 0, 3, "note")], asynchronous=False)
    return consumer


def dump(*arguments, status=0):
    command = ["millrace", "dump", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert (done.returncode, done.stderr) == (status, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def files(data, partition, suffix):
    return sorted((data / partition).glob(f"*{suffix}"))


@pytest.mark.parametrize("option", ["--offsets-decoder", "--records"])
def test_groups_and_offsets_are_decoded(data, option):
    lines = dump(option, *files(data, "__consumer_offsets-0", ".log"))
    kinds = {line["kind"] for line in lines if "kind" in line}
    assert {"offset", "classic_group", "group", "member", "target", "current"} <= kinds
    commits = [line for line in lines if line.get("kind") == "offset"]
    assert {(one["group"], one["topic"], one["partition"], one["committed"]) for one in commits} == {
        ("classic", "events", 0, 3), ("classic", "events", 0, 7), ("consumer", "events", 0, 3),
    }  # fmt: skip
    assert all(one["metadata"].startswith("note") for one in commits if one["committed"] == 3)
    groups = [line["value"] for line in lines if line.get("kind") == "classic_group"]
    assert groups[0]["protocol_type"] == "consumer"
    assert groups[0]["members"][0]["client_id"] == "rdkafka"
    assert any(line["value"] is None for line in lines if line.get("kind") == "member")
    assert len([line for line in lines if line.get("records") == 1 and line["producer_id"] >= 0]) == 4


def test_transactions_are_decoded_by_the_folders_name(data):
    lines = dump("--records", *files(data, "__transaction_state-0", ".log"))
    assert {"CompleteAbort", "CompleteCommit"} <= {line["state"] for line in lines if "state" in line}


def test_the_batches_alone_are_shown_without_an_option(data):
    assert all("base_offset" in line for line in dump(*files(data, "__consumer_offsets-0", ".log")))


def test_producers_and_aborted_transactions_are_shown(data):
    (producer,) = dump(files(data, "events-0", ".snapshot")[-1])
    assert (producer["last_offset"], producer["transaction_first_offset"]) == (2, -1)
    (index,) = files(data, "events-0", ".txnindex")
    (aborted,) = dump(index)
    assert aborted == {
        "file": str(index), "entry": 0, "producer_id": producer["producer_id"],
        "first_offset": 0, "last_offset": 1, "last_stable_offset": aborted["last_stable_offset"],
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex"])
@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damage_is_named(data, tmp_path, suffix, damage):
    file = Path(shutil.copy(files(data, "events-0", suffix)[-1], tmp_path))
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-3], "changed": b"\x7f" + content[1:], "empty": b""}[damage])
    if (suffix, damage) == (".txnindex", "empty"):
        assert dump(file) == []
        return
    assert "damage" in dump(file, status=1)[-1]
