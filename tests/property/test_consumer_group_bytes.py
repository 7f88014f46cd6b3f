"""Any bytes are a record of a consumer group, or a subscription, or a typed error; what is one comes back as it was."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import CorruptRecordError
from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.groups.consumer.classic_members import read_assignment, read_subscription, write_assignment
from millrace_broker.groups.consumer.records import Kind, decode_key, decode_value, encode_value

DATA = Path(__file__).parents[1] / "unit" / "broker" / "groups" / "consumer" / "data" / "kafka_41_consumer_offsets.json"
WRITTEN = [bytes.fromhex(value) for _, value in json.loads(DATA.read_text(encoding="utf-8")) if value]


@st.composite
def changed(draw):
    """Kafka's bytes with some of them changed, or any."""
    data = bytearray(draw(st.sampled_from(WRITTEN) | st.binary(max_size=60)))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@given(st.sampled_from(Kind), changed())
def test_values(kind, data):
    try:
        value = decode_value(kind, data)
    except CorruptRecordError:
        return
    assert decode_value(kind, encode_value(kind, value)) == value


@given(st.binary(max_size=40))
def test_keys(data):
    try:
        key = decode_key(data)
    except CorruptRecordError:
        return
    assert key is None or key.kind in Kind


@given(st.binary(max_size=60))
def test_what_classic_members_say(data):
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except CorruptRecordError:
            continue


@given(
    st.dictionaries(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=4),
    st.integers(0, 9),
)
def test_assignments_of_classic_members_come_back(partitions, version):
    assert read_assignment(write_assignment(partitions, version)) == (partitions, None)


@given(st.frozensets(st.tuples(st.uuids(), st.integers(0, 2**31 - 1)), max_size=20))
def test_assignments_come_back(assignment):
    given_out = frozenset(TopicIdPartition(*one) for one in assignment)
    assert decode_value(Kind.TARGET, encode_value(Kind.TARGET, given_out)) == given_out
