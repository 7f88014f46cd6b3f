"""Batches that lie, sent to Apache Kafka 3.9 and to us: what Kafka refuses is refused, what is taken can be read.

The answers are the same error code and the same refused records, but for the two tables below.
"""

import itertools
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.client import Admin, Cluster, SimpleConsumer
from millrace.errors import ErrorCode
from millrace.records.arrow import decode_to_arrow
from millrace.records.batch import NO_OFFSET, TRANSACTIONAL_FLAG, walk
from millrace.records.compression import Codec
from millrace.records.record import BatchProducer, decode_records
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_benchmarks.kafka_broker import KafkaBroker
from millrace_support.await_brokers import await_coordinators
from millrace_support.hostile_records import HostileRecords
from millrace_support.lying_batches import (
    BATCH_LIES,
    BLOCK_LIES,
    FLAG_LIES,
    LIES,
    PRODUCER_LIES,
    RECORD_LIES,
    Draft,
    Lying,
    Parts,
    lying_batches,
)
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

EXAMPLES = 400
TRANSACTIONS = 60
NONE, UNNAMED = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
INVALID, UNTIMELY = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP
NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "log-append-time": {"message.timestamp.type": "LogAppendTime"},
    "in-gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}
NOT_UTF_8 = "a header that is not UTF-8"
APPEND_TIME = "the log's append time"
NAMES = "names"  # the topic of those

OFFSETS = "Kafka's readers get these very offsets, some of them twice or of other batches"
LENGTHS = "Kafka does not look at a record's length in a compressed batch that it keeps; its readers do, and fail"
BELOW_NULL = "Kafka takes any negative length for null; only -1 is"
STRICTER = {  # what Kafka takes and we refuse
    "a record's length 0": LENGTHS,
    "a record's length huge": LENGTHS,
    "a record's length negative": LENGTHS,
    "a record's length too large": LENGTHS,
    "a record's length too small": LENGTHS,
    "a key's length below -1": BELOW_NULL,
    "a key's length the least": BELOW_NULL,
    "a value's length below -1": BELOW_NULL,
    "a header's value below -1": BELOW_NULL,
    "all offset deltas 0": OFFSETS,
    "offset deltas backwards": OFFSETS,
    "offset deltas with gaps": OFFSETS,
    "offset deltas from 1": OFFSETS,
    "offset deltas negative": OFFSETS,
    "an offset delta beyond 32 bits": "Kafka drops the bits above",
    "a timestamp delta beyond 64 bits": "the same",
    APPEND_TIME: "Kafka takes it where the topic does not set the time itself, and drops the mark",
    "a producer id below -1": "Kafka takes it for none",
    "a producer without an epoch": "no producer has this epoch",
}
OTHER_CODES = {  # what both refuse, with another error of ours
    "a producer with an epoch below -1": "Kafka compares it with the epoch of a producer that it does not know",
}
TAKEN = {  # where Kafka fails, and we do not: it can't compress such batches again
    "a base timestamp the least": "times below -1 do not fit into its builder of batches",
    "a base timestamp of another time": "the same",
    "a time before 1970": "the same",
    "a timestamp beyond 64 bits": "the same",
}


class Peer:
    """A broker, and what it answers to batches."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.raw = RawConnection(bootstrap)

    def produce(self, topic, records, *, version=9, transactional_id=None):
        """The error code, and the indexes of the records that are refused."""
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        fields = {"transactional_id": transactional_id, "acks": -1, "timeout": 60_000, "topic_data": data}
        answer = self.raw.request(ApiKey.PRODUCE, version, fields).responses[0].partition_responses[0]
        assert (answer.base_offset == NO_OFFSET) == bool(answer.error_code)
        return ErrorCode(answer.error_code), [one.batch_index for one in getattr(answer, "record_errors", ())]

    def produce_messages(self, topic, messages, version):
        """The error code for a message set, as old producers send it."""
        name = topic.encode()
        body = struct.pack(f">hii h{len(name)}s iii", -1, 60_000, 1, len(name), name, 1, 0, len(messages)) + messages
        answer = self.raw.exchange(ApiKey.PRODUCE, version, body)
        return ErrorCode(struct.unpack_from(">h", answer, 4 + 2 + len(name) + 4 + 4)[0])

    def begin(self, transactional_id, topic):
        """A transaction of a new epoch in a topic; who its producer is."""
        asked = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
        found = until(
            lambda: self.raw.request(ApiKey.INIT_PRODUCER_ID, 4, asked),
            lambda one: one.error_code not in NOT_YET,
        )
        assert found.error_code == 0
        added = self.raw.request(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": found.producer_id,
                "v3_and_below_producer_epoch": found.producer_epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            },
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        return BatchProducer(found.producer_id, found.producer_epoch, 0)


@pytest.fixture(scope="module")
def peers(kafka, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lying")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        starts = [lambda: KafkaBroker(kafka, directory / "kafka"), lambda: BrokerProcess(directory / "millrace")]
        brokers = [stack.enter_context(one.result()) for one in [pool.submit(start) for start in starts]]
        for broker in brokers:
            await_coordinators(broker)
            with Cluster(broker.bootstrap) as cluster:
                for topic, config in {**TOPICS, NAMES: {}}.items():
                    Admin(cluster).create_topic(topic, partitions=1, replication_factor=1, config=config)
        yield [Peer(broker.bootstrap) for broker in brokers]


def answers(peers, topic, records, **options):
    """Has the answer of Kafka, and that of Millrace."""
    return [peer.produce(topic, records, **options) for peer in peers]


def topic_of(lying, topic):
    """Where a batch is sent to: what is taken is read at the end, and such names can't be."""
    return NAMES if lying.lie == NOT_UTF_8 else topic


def judge(lie, theirs, ours):
    """Fails where ours is not Kafka's answer, or what the tables say."""
    expected = theirs
    if lie == APPEND_TIME:
        theirs, ours, expected = theirs[0], ours[0], UNTIMELY
    elif theirs[0] is UNNAMED:
        expected = (NONE if lie in TAKEN else INVALID), []
    elif lie in STRICTER or lie in OTHER_CODES:
        expected = INVALID, []
    assert ours == expected, f"{lie}: Kafka answers {theirs}, and we {ours}"


def test_every_lie_in_every_codec_and_topic(peers):
    told = ((lie, codec, topic) for lie in LIES for codec in Codec for topic in TOPICS)
    for lie, codec, topic in told:
        lying = Lying(lie, LIES[lie](Draft((Parts(0), Parts(1, 5), Parts(2, -7)), codec), 1))
        judge(lie, *answers(peers, topic_of(lying, topic), lying.draft.sealed()))


@settings(max_examples=EXAMPLES)
@given(lying_batches(), st.sampled_from(sorted(TOPICS)))
def test_lies_about_any_batch(peers, lying, topic):
    judge(lying.lie, *answers(peers, topic_of(lying, topic), lying.draft.sealed()))


producer_ids = itertools.count(1_000_000)


@settings(max_examples=EXAMPLES)
@given(lying_batches(LIES | PRODUCER_LIES), st.sampled_from(sorted(TOPICS)))
def test_lies_of_an_idempotent_producer(peers, lying, topic):
    draft = replace(lying.draft, producer=BatchProducer(next(producer_ids), 0, 0))
    judge(lying.lie, *answers(peers, topic_of(lying, topic), draft.sealed()))


@settings(max_examples=TRANSACTIONS)
@given(lying_batches(RECORD_LIES | BATCH_LIES | BLOCK_LIES | FLAG_LIES), st.sampled_from(["plain", "compacted"]))
def test_lies_in_a_transaction(peers, lying, topic):
    found, topic = [], topic_of(lying, topic)
    for peer in peers:
        draft = replace(lying.draft, producer=peer.begin("t", topic), flags=lying.draft.flags | TRANSACTIONAL_FLAG)
        found.append(peer.produce(topic, draft.sealed(), transactional_id="t"))
    judge(lying.lie, *found)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**63), st.sampled_from((0, 1, 2)), st.sampled_from(["plain", "compacted"]))
def test_message_sets_of_old_producers(peers, seed, version, topic):
    """They become batches with offsets of ours, so what we take is right; Kafka minds offsets that come to nothing."""
    ours = peers[1].produce_messages(topic, HostileRecords(Random(seed)).hostile_set(), version)
    assert ours is not UNNAMED


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_what_was_taken_can_be_read(peers, topic):
    """As records and as rows for the warehouse, each offset once; this test is the last."""
    with Cluster(peers[1].bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        offset, end = 0, consumer.latest(topic, 0)
        assert end > 0
        while offset < end:
            data = consumer.fetch(topic, 0, offset).records
            records = [record.offset for record in decode_records(data)]
            assert [row for one in decode_to_arrow(data) for row in one["offset"].to_pylist()] == records
            wanted = [
                number
                for _, header in walk(data)
                if not header.is_control
                for number in range(header.base_offset, header.next_offset)
            ]
            assert records == wanted
            offset = max(header.next_offset for _, header in walk(data))
