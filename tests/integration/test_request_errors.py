"""Errors in answers are counted by API and code at /metrics, whichever way the answer is encoded."""

import re
import urllib.request

import pytest

from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, encode_batch
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_broker.handlers.responses import error_codes
from millrace_support.raw import RawConnection

BATCH = encode_batch([NewRecord(b"value")])
PRODUCE = {"transactional_id": None, "acks": 1, "timeout": 100,
           "topic_data": [{"name": "nowhere", "partition_data": [{"index": 0, "records": BATCH}]}]}  # fmt: skip
FETCH_PARTITION = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
FETCH = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "forgotten_topics_data": [],
         "topics": [{"topic": "nowhere", "partitions": [FETCH_PARTITION]}]}  # fmt: skip
LIST_OFFSETS = {"replica_id": -1, "isolation_level": 0,
                "topics": [{"name": "nowhere", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}  # fmt: skip
METADATA = {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False}
JOIN = {"group_id": "g", "session_timeout": 6000, "rebalance_timeout": 100, "member_id": "nobody",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "nobody"}
EPOCHS = {"replica_id": -1, "topics": [{"topic": "nowhere", "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
CONFIGS = {"resources": [{"resource_type": 2, "resource_name": "nowhere", "configuration_keys": None}]}
ADD = {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0,
       "v3_and_below_topics": [{"name": "nowhere", "partitions": [0]}]}  # fmt: skip
DELETE = {"topic_names": ["nowhere"], "timeout": 100}
NOT_AT_WORK_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A broker with a group's coordinator at work."""
    with BrokerProcess(
        tmp_path_factory.mktemp("counted"), properties={"auto.create.topics.enable": "false"}
    ) as process:
        with RawConnection(process.bootstrap) as raw:
            raw.request(ApiKey.FIND_COORDINATOR, 1, {"key": "g", "key_type": 0})
            while raw.request(ApiKey.HEARTBEAT, 3, HEARTBEAT).error_code in NOT_AT_WORK_YET:
                pass
        yield process


def errors(broker):
    """What /metrics says of each API and error."""
    text = urllib.request.urlopen(f"{broker.admin_url}/metrics").read().decode()
    found = re.findall(r'^millrace_request_errors_total\{api="(\w+)",error="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {(api, error): float(value) for api, error, value in found}


@pytest.mark.parametrize(
    ("key", "version", "fields", "error"),
    [
        (ApiKey.PRODUCE, 9, PRODUCE, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "", "transaction_timeout": 1}, "INVALID_REQUEST"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, ADD, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.FETCH, 11, FETCH, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.FETCH, 11, FETCH | {"session_id": 99, "session_epoch": 7}, "FETCH_SESSION_ID_NOT_FOUND"),
        (ApiKey.LIST_OFFSETS, 5, LIST_OFFSETS, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.METADATA, 7, METADATA, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.JOIN_GROUP, 5, JOIN, "UNKNOWN_MEMBER_ID"),
        (ApiKey.HEARTBEAT, 3, HEARTBEAT, "UNKNOWN_MEMBER_ID"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, EPOCHS, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.DESCRIBE_CONFIGS, 2, CONFIGS, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.DELETE_TOPICS, 3, DELETE, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else value if isinstance(value, str) else "",
)
def test_an_error_raises_its_counter_by_one(counted, key, version, fields, error):
    before = errors(counted)
    with RawConnection(counted.bootstrap) as raw:
        raw.request(key, version, fields)
    after = errors(counted)
    raised = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert raised == {(key.name.lower(), error): 1}


def test_an_answer_without_errors_raises_none(counted):
    with RawConnection(counted.bootstrap) as raw:
        wanted = {"name": "good", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        raw.request(ApiKey.CREATE_TOPICS, 4, {"topics": [wanted], "timeout": 1000, "validate_only": False})
    before = errors(counted)
    with Cluster(counted.bootstrap) as cluster:
        SyncProducer(cluster).send("good", 0, [NewRecord(b"value")])
    assert errors(counted) == before


def test_error_codes_are_found_at_every_depth():
    partition = {"index": 1, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    fields = {"error_code": 0, "topics": [{"name": "t", "partitions": ({"error_code": 3}, partition)}],
              "one": {"error_code": 7}, "members": [b"bytes"], "names": ("a", "b")}  # fmt: skip
    assert sorted(error_codes(fields)) == [0, 3, 6, 7]


def test_metrics_are_named_as_prometheus_asks(counted):
    text = urllib.request.urlopen(f"{counted.admin_url}/metrics").read().decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helped = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    assert kinds.keys() == helped.keys()
    for name, kind in kinds.items():
        assert name.startswith(("millrace_", "process_"))
        assert (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"_(ms|millis|kb|mb|minutes)(_|$)", name), name
