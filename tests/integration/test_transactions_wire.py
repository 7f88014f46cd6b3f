"""Transactions by hand: what a reader of committed records waits for."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.client import Admin, Cluster
from millrace.errors import ErrorCode
from millrace.records.batch import TRANSACTIONAL_FLAG, walk
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection

NOT_SEEN_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip
LONG_MS = 120_000  # longer than a socket of these tests waits


class Client:
    """A transactional producer."""

    def __init__(self, raw, transactional_id):
        self.raw = raw
        self.id = transactional_id
        while raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": self.id, "key_type": 1}).error_code:
            pass
        fields = {"transactional_id": self.id, "transaction_timeout": 60_000}
        answer = raw.request(ApiKey.INIT_PRODUCER_ID, 4, fields)
        while answer.error_code in NOT_SEEN_YET:
            answer = raw.request(ApiKey.INIT_PRODUCER_ID, 4, fields)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, topic, partition):
        fields = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = self.raw.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, fields)
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def produce(self, topic):
        producer = BatchProducer(self.producer_id, self.epoch, 0)
        batch = encode_batch([NewRecord(b"value")], producer=producer, flags=TRANSACTIONAL_FLAG)
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        fields = {"transactional_id": self.id, "acks": -1, "timeout": 5000, "topic_data": data}
        return self.raw.request(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code

    def end(self, *, commit=True):
        fields = {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        return self.raw.request(ApiKey.END_TXN, 3, {**fields, "committed": commit}).error_code


def fetch(raw, topic):
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {
        "replica_id": -1, "max_wait": LONG_MS, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
        "topics": [{"topic": topic, "partitions": [partition]}], "forgotten_topics_data": [],
    }  # fmt: skip
    return raw.request(ApiKey.FETCH, 11, fields).responses[0].partitions[0]


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_releases_its_readers(broker, commit):
    """What they wait for was written before they began to wait."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1)
    with RawConnection(broker.bootstrap) as raw, RawConnection(broker.bootstrap) as other, ThreadPoolExecutor() as pool:
        client = Client(raw, "t")
        assert client.add("events", 0) == 0
        assert client.produce("events") == 0
        waiting = pool.submit(fetch, other, "events")
        while purgatory_size(broker) == 0:
            assert not waiting.done()
        assert client.end(commit=commit) == 0
        found = waiting.result()
        assert found.last_stable_offset == found.high_watermark == 2
        assert [header.is_control for _, header in walk(found.records)] == [False, True]
        assert len(found.aborted_transactions) == (not commit)


def test_offsets_can_be_added_before_any_group_was_looked_for(tmp_path):
    """As clients do whose consumers have no group: they look for its coordinator after that."""
    with BrokerProcess(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as raw:
        client = Client(raw, "t")
        fields = {
            "transactional_id": client.id, "producer_id": client.producer_id, "producer_epoch": client.epoch,
            "group_id": "g",
        }  # fmt: skip
        assert raw.request(ApiKey.ADD_OFFSETS_TO_TXN, 3, fields).error_code == 0


def purgatory_size(broker):
    text = urllib.request.urlopen(f"{broker.admin_url}/metrics").read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("millrace_purgatory_size ")]
    return float(line.split()[1])
