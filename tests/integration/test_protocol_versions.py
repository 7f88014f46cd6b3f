"""Every version of the hot APIs over a bare socket: what an old client sends and what it is told."""

import struct
from uuid import UUID

import pytest

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import ErrorCode
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.compression import Codec
from millrace.records.message_set import decode_message_set, encode_message_set
from millrace.records.record import BatchProducer, NewRecord, Record, decode_records, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder
from millrace_support.raw import RawConnection

PRODUCE, FETCH, LIST_OFFSETS, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
TIMES = [1000, 3000, 2000, 4000]


@pytest.fixture(scope="module")
def versions_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("versions")) as process:
        yield process


@pytest.fixture
def old(versions_broker):
    with RawConnection(versions_broker.bootstrap) as connection:
        yield connection


@pytest.fixture
def new_topic(versions_broker, request):
    """Makes topics of this test's own."""
    made = iter(range(10))

    def make(config=None, partitions=1):
        name = f"t{abs(hash(request.node.nodeid)) % 10**9}-{next(made)}"
        with Cluster(versions_broker.bootstrap) as cluster:
            Admin(cluster).create_topic(name, partitions, config=config or {})
            topic_id = cluster.metadata([name]).topics[name].topic_id
        return name, topic_id

    return make


def produce_body(version, topic, records, acks=1):
    out = Encoder(flexible=version >= 9)
    if version >= 3:
        out.string(None)
    out.int16(acks)
    out.int32(1000)
    out.array_length(1)
    out.uuid(topic[1]) if version >= 13 else out.string(topic[0])
    out.array_length(1)
    out.int32(0)
    out.bytes_(records)
    for _ in range(3):
        out.no_tagged_fields()
    return b"".join(out.parts)


def produce(raw, version, topic, records):
    """(error, base offset) of one partition, read by hand."""
    body = raw.exchange(PRODUCE, version, produce_body(version, topic, records))
    read = Decoder(body, flexible=version >= 9)
    assert read.array_length() == 1
    read.uuid() if version >= 13 else read.string()
    assert (read.array_length(), read.int32()) == (1, 0)
    return read.int16(), read.int64()


def put_wanted(out, version, topic, offset, max_bytes):
    out.uuid(topic[1]) if version >= 13 else out.string(topic[0])
    out.array_length(1)
    out.int32(0)
    if version >= 9:
        out.int32(-1)
    out.int64(offset)
    if version >= 12:
        out.int32(-1)
    if version >= 5:
        out.int64(-1)
    out.int32(max_bytes)
    out.no_tagged_fields()
    out.no_tagged_fields()


def fetch_body(version, topic, offset, *, max_bytes=1 << 20, session=(0, -1), wait_ms=0, forgotten=(), wanted=True):
    out = Encoder(flexible=version >= 12)
    if version < 15:
        out.int32(-1)
    for value in (wait_ms, 1, *([1 << 20] if version >= 3 else [])):
        out.int32(value)
    if version >= 4:
        out.raw(b"\x01")
    for value in session if version >= 7 else ():
        out.int32(value)
    out.array_length(int(wanted))
    if wanted:
        put_wanted(out, version, topic, offset, max_bytes)
    if version >= 7:
        out.array_length(len(forgotten))
        for one in forgotten:
            out.uuid(one[1]) if version >= 13 else out.string(one[0])
            out.int32_array([0])
            out.no_tagged_fields()
    if version >= 11:
        out.string("")
    out.no_tagged_fields()
    return b"".join(out.parts)


def fetch(raw, version, topic, offset, **options):
    """(error, high watermark, records) of one partition of a version below 4."""
    body = raw.exchange(FETCH, version, fetch_body(version, topic, offset, **options))
    read = Decoder(body)
    if version >= 1:
        assert read.int32() == 0
    assert (read.array_length(), read.string(), read.array_length(), read.int32()) == (1, topic[0], 1, 0)
    return read.int16(), read.int64(), read.bytes_()


def fetch_new(raw, version, topic, offset, **options):
    """kio's answer of version 4 and above."""
    return decode(
        FETCH, version, Direction.RESPONSE, raw.exchange(FETCH, version, fetch_body(version, topic, offset, **options))
    )


def batch_of(*values, codec=Codec.NONE, times=None):
    times = times or [1000 + index for index in range(len(values))]
    return encode_batch([NewRecord(value, b"k", time) for value, time in zip(values, times, strict=True)], codec=codec)


def old_set(magic, codec=Codec.NONE):
    records = [Record(index, 5000 + index, b"k%d" % index, b"v%d" % index) for index in range(3)]
    return encode_message_set(records, magic=magic, codec=codec)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_old_produce_becomes_batches_and_old_fetch_gives_them_back(old, new_topic, version, magic, codec):
    if (magic, codec) == (0, Codec.LZ4):
        pytest.skip("0.8 knew no lz4")
    topic = new_topic()
    assert produce(old, version, topic, old_set(magic, codec)) == (0, 0)
    assert produce(old, version, topic, old_set(magic, codec)) == (0, 3)
    stored = fetch_new(old, 4, topic, 0).responses[0].partitions[0].records
    assert [(one.offset, one.key, one.value) for one in decode_records(stored)] == [
        (index, b"k%d" % (index % 3), b"v%d" % (index % 3)) for index in range(6)
    ]
    assert {header.codec_id for _, header in walk(stored)} == {codec}
    for fetch_version in range(4):
        error, high_watermark, records = fetch(old, fetch_version, topic, 1)
        got = list(decode_message_set(records))
        assert (error, high_watermark) == (0, 6)
        assert [(one.offset, one.value) for one in got] == [(index, b"v%d" % (index % 3)) for index in range(1, 6)]
        kept = magic == 1 and fetch_version >= 2
        assert [one.timestamp_ms for one in got] == [5000 + index % 3 if kept else -1 for index in range(1, 6)]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_of_batches(old, new_topic, version):
    topic = new_topic()
    assert produce(old, version, topic, batch_of(b"a", b"b")) == (0, 0)
    assert produce(old, version, topic, batch_of(b"c")) == (0, 2)
    assert produce(old, version, topic, batch_of(b"c") + b"\x00" * 8) == (0, 3)
    assert produce(old, version, topic, old_set(1)) == (ErrorCode.INVALID_RECORD, -1)
    zstd = produce(old, version, topic, batch_of(bytes(100), codec=Codec.ZSTD))
    assert zstd == ((0, 4) if version >= 7 else (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1))
    nowhere = produce(old, version, ("nowhere", UUID(int=5)), batch_of(b"a"))[0]
    assert nowhere == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_log_append_time_is_told_from_v2_on(old, new_topic):
    topic = new_topic({"message.timestamp.type": "LogAppendTime"})
    body = old.exchange(PRODUCE, 2, produce_body(2, topic, old_set(1)))
    (appended,) = struct.unpack(">q", body[-12:-4])
    assert appended > 1_600_000_000_000
    records = fetch(old, 2, topic, 0)[2]
    assert {one.timestamp_ms for one in decode_message_set(records)} == {appended}


def test_damaged_message_sets_are_refused_and_cut_tails_are_passed_over(old, new_topic):
    topic = new_topic()
    damaged = bytearray(old_set(1))
    damaged[-1] ^= 1
    assert produce(old, 2, topic, bytes(damaged)) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert produce(old, 2, topic, old_set(1)[:-1]) == (0, 0)
    assert produce(old, 2, topic, b"") == (0, -1)
    assert fetch(old, 2, topic, 0)[1] == 2


def test_a_keyless_record_to_a_compacted_topic_is_named(old, new_topic):
    name, _ = new_topic({"cleanup.policy": "compact"})
    batch = encode_batch([NewRecord(b"v", b"k"), NewRecord(b"v"), NewRecord(b"w")])
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}]
    answer = old.request(PRODUCE, 9, {"transactional_id": None, "acks": 1, "timeout": 100, "topic_data": data})
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in partition.record_errors] == [1, 2]
    assert "no key" in partition.error_message


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("lz4", 3), ("zstd", 4), ("snappy", 2), ("uncompressed", 0)])
def test_compression_type_of_the_topic_wins(old, new_topic, name, codec):
    topic = new_topic({"compression.type": name, "compression.zstd.level": "7"})
    producer = BatchProducer(4000, 0, 0)
    batches = [batch_of(bytes(500)), encode_batch([NewRecord(bytes(500))], codec=Codec.GZIP, producer=producer)]
    assert [produce(old, 9, topic, batch) for batch in (*batches, batches[1])] == [(0, 0), (0, 1), (0, 1)]
    stored = fetch_new(old, 12, topic, 0).responses[0].partitions[0].records
    assert [header.codec_id for _, header in walk(stored)] == [codec] * 2
    assert [one.value for one in decode_records(stored)] == [bytes(500)] * 2


def test_fetch_at_a_mid_batch_offset_gives_the_whole_batch(old, new_topic):
    topic = new_topic()
    produce(old, 3, topic, batch_of(b"a", b"b", b"c"))
    for version in range(4, 19):
        records = fetch_new(old, version, topic, 1).responses[0].partitions[0].records
        assert [one.offset for one in decode_records(records)] == [0, 1, 2]
    for version in range(4):
        assert [one.offset for one in decode_message_set(fetch(old, version, topic, 1)[2])] == [1, 2]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_fetch_of_what_has_no_old_form(old, new_topic, version):
    zstd = new_topic()
    produce(old, 3, zstd, batch_of(b"first"))
    produce(old, 9, zstd, batch_of(bytes(200), codec=Codec.ZSTD))
    assert [one.value for one in decode_message_set(fetch(old, version, zstd, 0)[2])] == [b"first"]
    assert fetch(old, version, zstd, 1)[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    refusing = new_topic({"message.downconversion.enable": "false"})
    produce(old, 3, refusing, batch_of(b"first"))
    assert fetch(old, version, refusing, 0)[0] == ErrorCode.UNSUPPORTED_VERSION
    always_zstd = new_topic({"compression.type": "zstd"})
    produce(old, 3, always_zstd, batch_of(b"first"))
    assert fetch(old, version, always_zstd, 0)[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    nine = fetch_new(old, 9, always_zstd, 0).responses[0].partitions[0]
    assert nine.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert fetch_new(old, 10, always_zstd, 0).responses[0].partitions[0].error_code == 0


def test_a_batch_above_the_limit_is_given_from_v3_on(old, new_topic):
    topic = new_topic()
    produce(old, 3, topic, batch_of(bytes(500)))
    for version in (0, 1, 2):
        assert fetch(old, version, topic, 0, max_bytes=100) == (0, 1, b"")
    assert len(list(decode_message_set(fetch(old, 3, topic, 0, max_bytes=100)[2]))) == 1


@pytest.mark.parametrize("version", range(19))
def test_offsets_out_of_range_and_unknown_topics(old, new_topic, version):
    topic = new_topic()
    ask = fetch if version < 4 else fetch_new
    wrong = ask(old, version, topic, 7)
    code = wrong[0] if version < 4 else wrong.responses[0].partitions[0].error_code
    assert code == ErrorCode.OFFSET_OUT_OF_RANGE
    unknown = ask(old, version, ("nowhere", UUID(int=77)), 0)
    code = unknown[0] if version < 4 else unknown.responses[0].partitions[0].error_code
    assert code == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_fetch_session_tells_only_what_is_new(old, new_topic, version):
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        produce(old, 3, topic, batch_of(b"a"))
    session = fetch_new(old, version, first, 1, session=(0, 0)).session_id
    assert session > 0
    added = fetch_new(old, version, second, 1, session=(session, 1))
    assert (added.session_id, len(added.responses)) == (session, 1)
    assert fetch_new(old, version, first, 1, session=(session, 2), wanted=False).responses == ()
    produce(old, 3, first, batch_of(b"b"))
    (told,) = fetch_new(old, version, first, 1, session=(session, 3), wanted=False, wait_ms=5000).responses
    assert [one.value for one in decode_records(told.partitions[0].records)] == [b"b"]
    produce(old, 3, second, batch_of(b"c"))
    left = fetch_new(old, version, first, 2, session=(session, 4), forgotten=[second])
    assert left.responses == ()
    assert fetch_new(old, version, first, 2, session=(session, 9)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    other = 13 if version < 13 else 12
    crossed = fetch_new(old, other, first, 2, session=(session, 5))
    assert crossed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    fetch_new(old, version, first, 2, session=(session, -1))
    gone = fetch_new(old, version, first, 2, session=(session, 5))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_deleted_topic_ends_the_wait_of_a_fetch(versions_broker, old, new_topic):
    topic = new_topic()
    old.send(FETCH, 12, fetch_body(12, topic, 0, wait_ms=60_000))
    with Cluster(versions_broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(topic[0])
    answer = decode(FETCH, 12, Direction.RESPONSE, old.receive(FETCH, 12))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def list_offsets(raw, version, topic, timestamp, count=10):
    """(error, offsets) in v0, (error, timestamp, offset, leader epoch) above."""
    out = Encoder(flexible=version >= 6)
    out.int32(-1)
    if version >= 2:
        out.raw(b"\x00")
    out.array_length(1)
    out.string(topic[0])
    out.array_length(1)
    out.int32(0)
    if version >= 4:
        out.int32(-1)
    out.int64(timestamp)
    if version == 0:
        out.int32(count)
    for _ in range(2):
        out.no_tagged_fields()
    if version >= 10:
        out.int32(100)
    out.no_tagged_fields()
    read = Decoder(raw.exchange(LIST_OFFSETS, version, b"".join(out.parts)), flexible=version >= 6)
    if version >= 2:
        read.int32()
    assert (read.array_length(), read.string(), read.array_length(), read.int32()) == (1, topic[0], 1, 0)
    error = read.int16()
    if version == 0:
        return error, [read.int64() for _ in range(read.array_length())]
    return error, read.int64(), read.int64(), read.int32() if version >= 4 else 0


@pytest.mark.parametrize("version", range(11))
def test_list_offsets_by_time(old, new_topic, version):
    topic = new_topic()
    assert list_offsets(old, version, topic, -1)[1:] == ([0],) if version == 0 else (-1, 0, 0)
    produce(old, 3, topic, batch_of(b"a", b"b", b"c", b"d", times=TIMES))
    if version == 0:
        assert list_offsets(old, 0, topic, -1) == (0, [4, 0])
        assert list_offsets(old, 0, topic, -1, count=1) == (0, [4])
        assert list_offsets(old, 0, topic, -3) == (ErrorCode.UNSUPPORTED_VERSION, [])
        assert list_offsets(old, 0, topic, -2) == (0, [0])
        assert list_offsets(old, 0, topic, 0) == (0, [])
        return
    found = {time: list_offsets(old, version, topic, time) for time in (-2, -1, 0, 1001, 4000, 4001)}
    assert found == {
        -2: (0, -1, 0, 0), -1: (0, -1, 4, 0), 0: (0, 1000, 0, 0), 1001: (0, 3000, 1, 0), 4000: (0, 4000, 3, 0),
        4001: (0, -1, -1, 0 if version < 4 else -1),
    }  # fmt: skip
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, 0 if version < 4 else -1)
    assert list_offsets(old, version, topic, -3) == ((0, 4000, 3, 0) if version >= 7 else refused)
    assert list_offsets(old, version, topic, -4) == ((0, -1, 0, 0) if version >= 8 else refused)
    assert list_offsets(old, version, topic, -5) == ((0, -1, -1, -1) if version >= 9 else refused)
    assert list_offsets(old, version, topic, -7) == refused


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_a_leader_epoch(old, new_topic, version):
    topic = new_topic()
    produce(old, 3, topic, batch_of(b"a", b"b"))

    def end_of(epoch, current=-1):
        out = Encoder(flexible=version >= 4)
        if version >= 3:
            out.int32(-1)
        out.array_length(1)
        out.string(topic[0])
        out.array_length(1)
        out.int32(0)
        if version >= 2:
            out.int32(current)
        out.int32(epoch)
        for _ in range(3):
            out.no_tagged_fields()
        body = old.exchange(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, b"".join(out.parts))
        read = Decoder(body, flexible=version >= 4)
        if version >= 2:
            read.int32()
        assert (read.array_length(), read.string(), read.array_length()) == (1, topic[0], 1)
        error = read.int16()
        assert read.int32() == 0
        return error, read.int32() if version >= 1 else epoch, read.int64()

    assert end_of(0) == (0, 0, 2)
    assert end_of(9) == (0, -1 if version >= 1 else 9, -1)
    if version >= 2:
        assert end_of(0, current=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(14))
def test_metadata(old, new_topic, version):
    name, topic_id = new_topic()
    fields = {
        "topics": [{"name": one, "topic_id": None} for one in (name, "bad name!", "__consumer_offsets")],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    answer = old.request(METADATA, version, fields)
    topics = {topic.name: topic for topic in answer.topics}
    assert topics[name].error_code == 0
    assert topics["bad name!"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topics["__consumer_offsets"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 1:
        assert [topics[one].is_internal for one in (name, "__consumer_offsets")] == [False, True]
        assert answer.controller_id == 1
    if version >= 8:
        assert topics[name].topic_authorized_operations == 3576
    if 8 <= version <= 10:
        assert answer.cluster_authorized_operations == 8096
    if version >= 10:
        assert topics[name].topic_id == topic_id
    everything = old.request(METADATA, version, fields | {"topics": [] if version == 0 else None})
    assert name in {topic.name for topic in everything.topics}
    if version >= 1:
        assert old.request(METADATA, version, fields | {"topics": []}).topics == ()


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_by_id(old, new_topic, version):
    name, topic_id = new_topic()
    asked = [{"name": None, "topic_id": one} for one in (topic_id, UUID(int=99))]
    fields = {
        "topics": asked, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }  # fmt: skip
    topics = old.request(METADATA, version, fields).topics
    found = [(topic.error_code, topic.name, topic.topic_id) for topic in topics]
    if version < 12:
        assert {code for code, _, _ in found} == {ErrorCode.INVALID_REQUEST}
    else:
        assert found == [(ErrorCode.UNKNOWN_TOPIC_ID, None, UUID(int=99)), (0, name, topic_id)]


@pytest.mark.parametrize("version", range(5))
def test_api_versions(old, version):
    fields = {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"}
    served = {
        one.api_key: (one.min_version, one.max_version)
        for one in old.request(ApiKey.API_VERSIONS, version, fields).api_keys
    }
    assert (served[PRODUCE], served[FETCH], served[LIST_OFFSETS]) == ((0, 13), (0, 18), (0, 10))
    if version >= 3:
        refused = old.request(ApiKey.API_VERSIONS, version, fields | {"client_software_name": "-bad-"})
        assert (refused.error_code, refused.api_keys) == (ErrorCode.INVALID_REQUEST, ())


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(old, version):
    fields = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    answers = [old.request(ApiKey.INIT_PRODUCER_ID, version, fields) for _ in range(3)]
    assert {(one.error_code, one.producer_epoch) for one in answers} == {(0, 0)}
    assert len({one.producer_id for one in answers}) == 3
    refused = old.request(ApiKey.INIT_PRODUCER_ID, version, fields | {"transactional_id": ""})
    assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_a_transactional_batch_is_refused(old, new_topic):
    batch = encode_batch([NewRecord(b"v")], producer=BatchProducer(4100, 0, 0), flags=TRANSACTIONAL_FLAG)
    assert produce(old, 9, new_topic(), batch) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
