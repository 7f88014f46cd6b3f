"""What a request says that has a broker adopt a topic, with errors that name the field."""

import json
from uuid import UUID

import pytest

from millrace.errors import InvalidRequestError
from millrace.uuids import encode_id
from millrace_broker.admin.requests import (
    MAX_PARTITIONS,
    MAX_PRODUCER_ID,
    read_adoption,
    read_first_free_producer_id,
)
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicInfo

ID = UUID(int=7)
PARTITION = {"leader": 2, "leader_epoch": 105, "replicas": [2, 1]}
WHOLE = {"topic": "t", "topic_id": encode_id(ID), "first_free_producer_id": 9, "partitions": [PARTITION]}


def test_a_request_is_a_topic_whose_leaders_are_alone_in_sync():
    topic, first_free = read_adoption(json.dumps({**WHOLE, "config": {"retention.ms": "7"}}).encode())
    assert topic == TopicInfo("t", ID, (PartitionInfo(0, 2, 105, (2, 1), (2,)),), {"retention.ms": "7"})
    assert first_free == 9
    assert read_adoption(json.dumps(WHOLE).encode()).topic.config == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b"[]", r"the body: a JSON object is expected, not \[\]"),
    ],
)
def test_a_body_that_is_no_object_is_refused(body, message):
    for read in (read_adoption, read_first_free_producer_id):
        with pytest.raises(InvalidRequestError, match=message):
            read(body)


@pytest.mark.parametrize("name", WHOLE)
def test_a_field_that_is_missing_is_named(name):
    fields = {key: value for key, value in WHOLE.items() if key != name}
    with pytest.raises(InvalidRequestError, match=f"the field {name} is missing"):
        read_adoption(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, "unknown field 'more', expected topic, "),
        ({"topic": None}, "topic: a text is expected, not None"),
        ({"topic_id": "short"}, "topic_id: the 22 characters of an id are expected, not 'short'"),
        ({"topic_id": "A" * 22}, "topic_id: the 22 characters"),
        ({"topic_id": "\u00e4" * 22}, "topic_id: the 22 characters"),
        ({"topic_id": "*" * 22}, "topic_id: the 22 characters"),
        ({"first_free_producer_id": -1}, f"first_free_producer_id: a number from 0 to {MAX_PRODUCER_ID} is expected"),
        ({"first_free_producer_id": MAX_PRODUCER_ID + 1}, "first_free_producer_id: a number from 0"),
        ({"first_free_producer_id": True}, "first_free_producer_id: a number from 0"),
        ({"partitions": []}, f"partitions: a list of 1 to {MAX_PARTITIONS} partitions is expected"),
        ({"partitions": [PARTITION] * (MAX_PARTITIONS + 1)}, "partitions: a list of 1"),
        ({"partitions": {}}, "partitions: a list of 1"),
        ({"partitions": [1]}, r"partitions\[0\]: a JSON object is expected, not 1"),
        ({"partitions": [PARTITION, {"leader": 1}]}, r"partitions\[1\]: the field leader_epoch is missing"),
        ({"partitions": [PARTITION | {"isr": []}]}, r"partitions\[0\]: unknown field 'isr'"),
        (
            {"partitions": [PARTITION | {"leader": 3}]},
            r"partitions\[0\].leader: broker 3 is none of the replicas",
        ),
        ({"partitions": [PARTITION | {"leader_epoch": 2**30 + 1}]}, r"partitions\[0\].leader_epoch: a number from 0"),
        ({"partitions": [PARTITION | {"replicas": "1,2"}]}, r"partitions\[0\].replicas: a list of brokers is expected"),
        ({"partitions": [PARTITION | {"replicas": [2, "1"]}]}, r"partitions\[0\].replicas: a number from 0"),
        ({"config": []}, "config: an object of texts is expected"),
        ({"config": {"retention.ms": 7}}, "config: an object of texts is expected"),
    ],
)
def test_a_wrong_value_is_named(change, message):
    with pytest.raises(InvalidRequestError, match=message):
        read_adoption(json.dumps({**WHOLE, **change}).encode())
