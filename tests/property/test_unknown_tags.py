"""Tagged fields that no schema has (KIP-482): a request says the same with them as without, and is answered alike."""

import struct
from collections import Counter
from random import Random

import pytest

from millrace.errors import MalformedRequestError
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey, VersionRange, is_flexible
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.encoder import unsigned_varint
from millrace.wire.fetch import decode_fetch_request
from millrace.wire.header import MAX_TAGGED_FIELDS, encode_request_header, read_request_header
from millrace.wire.kio_schemas import schema
from millrace.wire.produce import decode_without_copying
from millrace_broker.handlers.registry import APIS
from millrace_support.random_requests import RequestFuzzer, UnknownTags
from millrace_support.random_words import Words
from millrace_support.raw import RawConnection

FLEXIBLE = [
    (ApiKey(key), version)
    for key, api in APIS.items()
    for version in range(api.versions.minimum, api.versions.maximum + 1)
    if is_flexible(key, version)
]
BY_HAND = {
    ApiKey.PRODUCE: decode_without_copying,
    ApiKey.FETCH: decode_fetch_request,
}
NONE = UnknownTags(Random(0), 0.0)
ROUNDS = 30


class CountedTags(UnknownTags):
    """In nearly every structure, counted by the names of its fields."""

    def __init__(self, seed):
        super().__init__(Random(seed), 0.9)
        self.places = Counter()

    def beside(self, known):
        found = super().beside(known)
        self.places[tuple(one.name for one in known)] += len(found)
        return found


def structures(fields):
    """The names of the fields of each structure, as `CountedTags` has them."""
    yield tuple(one.name for one in fields)
    for one in fields:
        if one.kind == "struct":
            yield from structures(one.fields)


def read(key, version, request):
    """(client id, message, the same by the hand-written decoder)."""
    frame = bytes(request)
    header = read_request_header(memoryview(frame))
    body = memoryview(frame)[header.body_position :]
    by_hand = BY_HAND.get(key)
    return header.client_id, decode(key, version, Direction.REQUEST, body), by_hand and by_hand(version, body)


@pytest.mark.parametrize(("key", "version"), FLEXIBLE, ids=lambda one: getattr(one, "name", one))
def test_a_request_says_the_same_with_unknown_tags_at_every_level(key, version):
    random = Random(int(key) * 100 + version)
    fuzzer = RequestFuzzer(random, {key: VersionRange(version, version)}, Words())
    tags = CountedTags(version)
    compared = 0
    for _ in range(ROUNDS):
        state = random.getstate()
        plain, _ = fuzzer.whole(key, version, NONE)
        random.setstate(state)
        tagged, _ = fuzzer.whole(key, version, tags)
        try:
            expected = read(key, version, plain)
        except MalformedRequestError:  # random text may be no UTF-8, random codes none that there are
            continue
        assert read(key, version, tagged) == expected
        compared += 1
    assert compared > ROUNDS // 3
    assert all(tags.places[names] for names in (*structures(schema(key, version, Direction.REQUEST)[1]), ()))


def test_the_sizes_around_what_is_left_out_are_mended():
    """The state of a replica is itself a tagged field; here with a strange field of 200 bytes, so that its size varies.

    The bytes of Fetch v15: cluster id is tag 0, replica state tag 1.
    """
    fields = {
        "cluster_id": "c",
        "max_wait": 1,
        "min_bytes": 1,
        "topics": (),
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    plain = encode(ApiKey.FETCH, 15, Direction.REQUEST, fields)
    assert plain.endswith(b"\x01\x00\x02\x02c")
    state = struct.pack(">iq", 7, 9)
    strange = b"\x01" + unsigned_varint(5) + unsigned_varint(200) + bytes(200)
    tagged = (
        plain[:-5] + b"\x04" + b"\x00\x02\x02c" + b"\x01" + unsigned_varint(len(state + strange)) + state + strange
        + unsigned_varint(9) + b"\x00" + unsigned_varint(1 << 30) + b"\x03abc"
    )  # fmt: skip
    message = decode(ApiKey.FETCH, 15, Direction.REQUEST, tagged)
    assert (message.cluster_id, message.replica_state.replica_id, message.replica_state.replica_epoch) == ("c", 7, 9)


def test_an_answer_of_a_newer_broker_is_read_too():
    plain = encode(ApiKey.API_VERSIONS, 3, Direction.RESPONSE, {"error_code": 0, "api_keys": (), "throttle_time": 0})
    assert plain.endswith(b"\x00")
    strange = plain[:-1] + b"\x01\x63\x02ab"
    assert decode(ApiKey.API_VERSIONS, 3, Direction.RESPONSE, strange) == decode(
        ApiKey.API_VERSIONS, 3, Direction.RESPONSE, plain
    )


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("tags", [MAX_ELEMENTS + 1, (1 << 32) - 1])
def test_more_tagged_fields_than_elements_may_be_are_refused(version, tags):
    plain = encode(ApiKey.PRODUCE, version, Direction.REQUEST, {"acks": 1, "timeout": 1, "topic_data": ()})
    body = plain[:-1] + unsigned_varint(tags) + b"\x05\x00" * 1000
    for reader in (lambda body: decode(ApiKey.PRODUCE, version, Direction.REQUEST, body),
                   lambda body: decode_without_copying(version, body)):  # fmt: skip
        with pytest.raises(MalformedRequestError, match=r"tagged|elements"):
            reader(body)


@pytest.mark.parametrize(
    "content", [b"\x01\x05", b"\x01\x05\x7f", b"\x02\x05\x01a", b"\x01\xff\xff\xff\xff\xff\x01\x00"]
)
def test_an_unknown_tag_that_runs_over_its_request_is_refused(content):
    plain = encode(ApiKey.DESCRIBE_CLUSTER, 0, Direction.REQUEST, {"include_cluster_authorized_operations": False})
    with pytest.raises(MalformedRequestError, match="can't be decoded"):
        decode(ApiKey.DESCRIBE_CLUSTER, 0, Direction.REQUEST, plain[:-1] + content)


def test_a_header_of_very_many_tagged_fields_is_refused():
    header = encode_request_header(ApiKey.METADATA, 12, 1, "x")[:-1]
    assert read_request_header(
        memoryview(header + unsigned_varint(MAX_TAGGED_FIELDS) + b"\x05\x00" * MAX_TAGGED_FIELDS)
    )
    with pytest.raises(MalformedRequestError, match="limit"):
        read_request_header(memoryview(header + unsigned_varint(MAX_TAGGED_FIELDS + 1) + b"\x05\x00" * 9000))


class OneOfEach(Words):
    """One element in each array, and what is answered at once."""

    def count(self, random, *, is_nullable):
        return 1

    def integer(self, random, name, bits):
        return {"acks": 1, "replica_id": -1}.get(name, 0)

    def text(self, random, name, inside, *, is_nullable):
        return None if is_nullable and name != "cluster_id" else "some"  # kio reads no null in a tagged field

    def blob(self, random, name, *, is_nullable):
        return b""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize(("key", "version"), FLEXIBLE, ids=lambda one: getattr(one, "name", one))
def test_unknown_tags_are_passed_over_on_a_socket(broker, key, version):
    """Header and every structure end with some, and an answer comes that is one."""
    fuzzer = RequestFuzzer(Random(1), {key: VersionRange(version, version)}, OneOfEach())
    with RawConnection(broker.bootstrap) as connection:
        for seed in (1, 2):
            request, _ = fuzzer.whole(key, version, UnknownTags(Random(seed), 1.0))
            decode(key, version, Direction.RESPONSE, connection.exchange_frame(bytes(request)))
