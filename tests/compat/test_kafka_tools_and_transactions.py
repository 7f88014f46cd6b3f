"""Apache Kafka's tools look at transactions of ours: our log of states, and one that hangs, which they end."""

import json
import re
import shutil
import subprocess

import pytest

from millrace.client import Admin, Cluster
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_broker.txns.state import TransactionState
from millrace_support.raw import RawConnection

pytestmark = pytest.mark.usefixtures("warm_path")

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "kafka.tools.DumpLogSegments"
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",  # else no partition would take what hangs
}
LONG_AGO_MS = 1_700_000_000_000


class Client:
    """A transactional producer by hand."""

    def __init__(self, raw, transactional_id):
        self.raw = raw
        self.id = transactional_id
        found = raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": transactional_id, "key_type": 1})
        assert found.error_code == 0
        answer = raw.request(
            ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": transactional_id, "transaction_timeout": 900_000}
        )
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    def add(self, topic):
        names = dict(zip(("transactional_id", "producer_id", "producer_epoch"), (self.id, *self.producer), strict=True))
        fields = {f"v3_and_below_{key}": value for key, value in names.items()}
        topics = [{"name": topic, "partitions": [0]}]
        answer = self.raw.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**fields, "v3_and_below_topics": topics})
        assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0

    def end(self, version):
        fields = {"transactional_id": self.id, "producer_id": self.producer[0], "producer_epoch": self.producer[1]}
        assert self.raw.request(ApiKey.END_TXN, version, {**fields, "committed": True}).error_code == 0

    def produce(self, topic, sequence):
        record = NewRecord(b"value", timestamp_ms=LONG_AGO_MS)
        batch = encode_batch([record], producer=BatchProducer(*self.producer, sequence), flags=TRANSACTIONAL_FLAG)
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        fields = {"transactional_id": self.id, "acks": -1, "timeout": 5000, "topic_data": data}
        answer = self.raw.request(ApiKey.PRODUCE, 9, fields)
        assert answer.responses[0].partition_responses[0].error_code == 0


def last_stable_offset(raw, topic):
    partition = {"partition_index": 0, "timestamp": -1}
    fields = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": topic, "partitions": [partition]}]}
    return raw.request(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0].offset


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    """Returns a data folder with a hanging transaction in one topic and an open transaction in another."""
    data = tmp_path_factory.mktemp("hanging") / "data"
    with BrokerProcess(data, properties=PROPERTIES) as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("hung", 1)
        Admin(cluster).create_topic("open", 1)
        with RawConnection(broker.bootstrap) as raw:
            late, busy = Client(raw, "late"), Client(raw, "busy")
            late.add("hung")
            late.produce("hung", 0)
            late.end(3)
            late.produce("hung", 1)  # as if the request came late, after its producer had given it up
            busy.add("open")
            busy.produce("open", 0)
            assert last_stable_offset(raw, "hung") == 2
    return data


def verify(data):
    result = subprocess.run(["millrace", "verify", str(data)], capture_output=True, text=True, timeout=120, check=False)
    return result.returncode, result.stdout


def test_a_hanging_transaction_is_found_and_aborted(hanging, any_kafka, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(hanging, data)
    code, said = verify(data)
    assert code == 1
    (line,) = [line for line in said.splitlines() if "a hanging transaction" in line]
    assert re.search(r"hung-0/\d+\.log: byte \d+: .*producer 0, epoch 0, offset 2 of hung-0", line), line
    with BrokerProcess(data, properties=PROPERTIES) as broker, RawConnection(broker.bootstrap) as raw:

        def tool(*arguments):
            return any_kafka.run(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *arguments)

        found = tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")
        assert re.search(r"^hung\s+0\s+0\s+0\s+\d+\s+2\s", found, re.MULTILINE), found
        assert not re.search(r"^open\s", found, re.MULTILINE)
        tool("abort", "--topic", "hung", "--partition", "0", "--start-offset", "2")
        assert last_stable_offset(raw, "hung") == 4
        assert last_stable_offset(raw, "open") == 0
    assert verify(data)[0] == 0


def test_the_log_of_states_is_kafkas(hanging, any_kafka):
    """Each version's own decoder reads every record that this broker has written."""
    (segment,) = (hanging / "__transaction_state-0").glob("*.log")
    said = any_kafka.run(DUMP, "--transaction-log-decoder", "--files", str(segment))
    old = re.findall(r"transactionalId=late payload: .*state=(\w+)", said)
    new = re.findall(r'"transactionalId":"late"\}\} payload: .*"transactionStatus":(\d)', said)
    states = old or [str(TransactionState(int(number))) for number in new]
    assert states == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"], said
    command = ["millrace", "dump", "--transaction-log-decoder", "--json", str(segment)]
    ours = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = [line for line in map(json.loads, ours.splitlines()) if "state" in line]
    assert [line["state"] for line in lines if line["transactional_id"] == "late"] == states
    told = [tuple(map(int, one)) for one in re.findall(r'payload: .*?producerId\W+(\d+),"?producerEpoch\W+(\d+)', said)]
    assert [(line["producer_id"], line["producer_epoch"]) for line in lines] == told
