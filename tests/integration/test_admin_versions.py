"""Every admin API in every version that is served, one request each."""

import socket

import pytest

from millrace.addresses import Address
from millrace.errors import ErrorCode
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.encoder import INT32
from millrace.wire.header import encode_request_header, has_tagged_response_header
from millrace_broker.handlers.registry import APIS

TOPIC = "there"
WAIT = {"timeout": 60_000}
TOPICS = {"topics": [{"name": TOPIC, "partitions": [], "partition_indexes": [0]}]}
CONFIG = {"name": "retention.ms", "value": "5", "config_operation": 0}
RESOURCE = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None, "configs": [CONFIG]}
RESOURCES = {"resources": [RESOURCE], "include_synonyms": False, "include_documentation": False, "validate_only": True}
NEW = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
REQUESTS = {
    ApiKey.CREATE_TOPICS: {"topics": [NEW], **WAIT, "validate_only": True},
    ApiKey.DELETE_TOPICS: {"topic_names": ["nobody"], "topics": [{"name": "nobody", "topic_id": None}], **WAIT},
    ApiKey.DELETE_RECORDS: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": -1}]}], **WAIT},
    ApiKey.DESCRIBE_CONFIGS: RESOURCES,
    ApiKey.ALTER_CONFIGS: RESOURCES,
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
    ApiKey.CREATE_PARTITIONS: {
        "topics": [{"name": TOPIC, "count": 2, "assignments": None}], **WAIT, "validate_only": True,
    },
    ApiKey.ELECT_LEADERS: {"election_type": 0, "topic_partitions": [{"topic": TOPIC, "partitions": [0]}], **WAIT},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: RESOURCES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}], **WAIT,
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None, **WAIT},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    ApiKey.DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False,
    },
    ApiKey.DESCRIBE_PRODUCERS: TOPICS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {**TOPICS, "response_partition_limit": 10},
}  # fmt: skip
EXPECTED = {
    ApiKey.CREATE_TOPICS: {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS},  # v0 can't but create
    ApiKey.DELETE_TOPICS: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {ErrorCode.LOG_DIR_NOT_FOUND},
    ApiKey.ELECT_LEADERS: {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED},
}
SERVED = [(key, version) for key in REQUESTS for version in range(APIS[key].versions[0], APIS[key].versions[1] + 1)]


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("versions") / "data") as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with socket.create_connection(Address(host, int(port)), timeout=60) as connected:
            request(
                connected, ApiKey.CREATE_TOPICS, 7, {"topics": [{**NEW, "name": TOPIC}], **WAIT, "validate_only": False}
            )
            yield connected


def request(connected, key, version, fields):
    """The answer's bytes, without its header."""
    message = encode_request_header(key, version, 7, "test") + encode(key, version, Direction.REQUEST, fields)
    connected.sendall(INT32.pack(len(message)) + message)
    [size] = INT32.unpack(receive(connected, 4))
    answer = receive(connected, size)
    return answer[5:] if has_tagged_response_header(key, version) else answer[4:]


def receive(connected, size):
    data = b""
    while len(data) < size:
        chunk = connected.recv(size - len(data))
        assert chunk, "the broker has closed the connection"
        data += chunk
    return data


def error_codes(message):
    """Every error code anywhere in a decoded answer."""
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        if name == "error_code":
            yield value.value
        elif isinstance(value, tuple):
            for one in value:
                yield from error_codes(one)


def test_every_admin_api_is_here():
    admin = {key for key in APIS if key in range(19, 22) or key in range(32, 49) or key in (50, 60, 61, 75)}
    assert {int(key) for key in REQUESTS} <= admin


@pytest.mark.parametrize(("key", "version"), SERVED, ids=lambda value: getattr(value, "name", value))
def test_a_version(connection, key, version):
    message = decode(key, version, Direction.RESPONSE, request(connection, key, version, REQUESTS[key]))
    assert set(error_codes(message)) <= EXPECTED.get(key, {ErrorCode.NONE})
