"""The hand-written encoders against kio's decoders, at every version that is served."""

from uuid import uuid4

import pytest

from millrace.wire import metadata as m
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from millrace.wire.metadata import BrokerMetadata, LeaderHint
from millrace.wire.produce import PartitionProduced, TopicProduced, encode_produce_response

TOPIC_ID = uuid4()


@pytest.mark.parametrize("version", range(3, 14))
def test_produce(version):
    partitions = [PartitionProduced(0, 0, 5, 77, 2), PartitionProduced(1, 3, -1, -1, -1, "no such partition")]
    body = b"".join(encode_produce_response(version, [TopicProduced("events", TOPIC_ID, partitions)]))
    answer = decode(ApiKey.PRODUCE, version, Direction.RESPONSE, body)
    topic = answer.responses[0]
    assert topic.topic_id == TOPIC_ID if version >= 13 else topic.name == "events"
    good, bad = topic.partition_responses
    assert (good.index, good.error_code, good.base_offset) == (0, 0, 5)
    assert (bad.index, bad.error_code, bad.base_offset) == (1, 3, -1)
    if version >= 5:
        assert good.log_start_offset == 2
    if version >= 8:
        assert (good.error_message, bad.error_message) == (None, "no such partition")


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(version):
    topics = [TopicFetched("events", TOPIC_ID, [PartitionFetched(3, 0, 9, 8, 2, b"abc")])]
    body = b"".join(encode_fetch_response(version, topics))
    answer = decode(ApiKey.FETCH, version, Direction.RESPONSE, body)
    partition = answer.responses[0].partitions[0]
    assert (partition.partition_index, partition.high_watermark, partition.last_stable_offset) == (3, 9, 8)
    assert partition.records == b"abc"
    if version >= 5:
        assert partition.log_start_offset == 2


@pytest.mark.parametrize("version", range(14))
def test_metadata(version):
    partition = m.PartitionMetadata(0, 0, 1, 6, [1, 2], [1])
    cluster = m.ClusterMetadata(
        "cluster", 1, [m.BrokerMetadata(1, "host", 9092, None)], [m.TopicMetadata(0, "t", TOPIC_ID, False, [partition])]
    )
    answer = decode(
        ApiKey.METADATA, version, Direction.RESPONSE, b"".join(m.encode_metadata_response(version, cluster))
    )
    assert (answer.brokers[0].node_id, answer.brokers[0].host, answer.brokers[0].port) == (1, "host", 9092)
    described = answer.topics[0].partitions[0]
    assert (described.leader_id, described.replica_nodes, described.isr_nodes) == (1, (1, 2), (1,))
    if version >= 7:
        assert described.leader_epoch == 6
    if version >= 10:
        assert answer.topics[0].topic_id == TOPIC_ID


def test_a_mapping_serves_every_version():
    partition = {"partition_index": 1, "error_code": 0, "timestamp": 5, "offset": 9, "leader_epoch": 4}
    fields = {"throttle_time": 0, "topics": [{"name": "t", "partitions": [partition]}]}
    for version in range(1, 12):
        body = encode(ApiKey.LIST_OFFSETS, version, Direction.RESPONSE, fields)
        answer = decode(ApiKey.LIST_OFFSETS, version, Direction.RESPONSE, body)
        assert answer.topics[0].partitions[0].offset == 9


HINT, ENDPOINT = LeaderHint(2, 7), BrokerMetadata(2, "other", 9093, None)


@pytest.mark.parametrize("version", range(8, 14))
def test_produce_names_bad_records_and_the_leader(version):
    failed = PartitionProduced(1, 6, -1, -1, -1, "why", [(3, "no key")], HINT)
    body = b"".join(encode_produce_response(version, [TopicProduced("events", TOPIC_ID, [failed])], [ENDPOINT]))
    answer = decode(ApiKey.PRODUCE, version, Direction.RESPONSE, body)
    (got,) = answer.responses[0].partition_responses
    assert [(one.batch_index, one.batch_index_error_message) for one in got.record_errors] == [(3, "no key")]
    if version >= 10:
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == HINT
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [ENDPOINT[:3]]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_tells_sessions_transactions_and_leaders(version):
    plain = PartitionFetched(3, 0, 9, 8, 2, b"abc")
    full = PartitionFetched(4, 6, 9, 8, 2, b"", [(77, 5), (78, 6)], (1, 4), HINT)
    body = b"".join(
        encode_fetch_response(
            version, [TopicFetched("events", TOPIC_ID, [plain, full])], 71, session_id=99, endpoints=[ENDPOINT]
        )
    )
    answer = decode(ApiKey.FETCH, version, Direction.RESPONSE, body)
    first, second = answer.responses[0].partitions
    assert first.aborted_transactions is None
    assert [(one.producer_id, one.first_offset) for one in second.aborted_transactions] == [(77, 5), (78, 6)]
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (71, 99)
    if version >= 12:
        assert (second.diverging_epoch.epoch, second.diverging_epoch.end_offset) == (1, 4)
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == HINT
    if version >= 16:
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [ENDPOINT[:3]]
