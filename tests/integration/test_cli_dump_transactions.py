"""`millrace dump --transaction-log-decoder`: records of transaction states, as they are and damaged."""

import json
import subprocess

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.txns.records import transaction_record
from millrace_broker.txns.state import EPOCH_BUMP_VERSION, TransactionMetadata, TransactionState

pytestmark = pytest.mark.usefixtures("warm_path")
TIME_MS = 1_700_000_000_000
EMPTY = TransactionMetadata(producer_id=7, producer_epoch=3, timeout_ms=60_000, last_update_timestamp_ms=TIME_MS)
DECIDED = TransactionMetadata(
    producer_id=8,
    producer_epoch=1,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("events", 2), TopicPartition("events", 0)}),
    start_timestamp_ms=TIME_MS,
    last_update_timestamp_ms=TIME_MS + 1,
    previous_producer_id=7,
    client_version=EPOCH_BUMP_VERSION,
)


def segment(folder, *records):
    log = Log(OsFileSystem(), SystemClock(), str(folder), TopicPartition("__transaction_state", 0), LogConfig())
    for record in records:
        log.append(encode_batch([NewRecord(record.value, record.key, TIME_MS)]), leader_epoch=0)
    log.close()
    (file,) = folder.glob("*.log")
    return file


def dump(file, *arguments):
    command = ["millrace", "dump", "--transaction-log-decoder", str(file), *arguments]
    result = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert result.stderr == ""
    return result.returncode, result.stdout


def test_states_and_tombstones_are_shown(tmp_path):
    records = [transaction_record("id", kept) for kept in (EMPTY, DECIDED, None)]
    file = segment(tmp_path, *records)
    code, said = dump(file, "--json")
    empty, decided, forgotten = [line for line in map(json.loads, said.splitlines()) if "transactional_id" in line]
    assert code == 0
    assert (empty["state"], empty["producer_id"], empty["producer_epoch"], empty["partitions"]) == ("Empty", 7, 3, [])
    assert decided == {
        "file": str(file),
        "offset": 1,
        "timestamp": TIME_MS,
        "transactional_id": "id",
        "state": "PrepareCommit",
        "producer_id": 8,
        "producer_epoch": 1,
        "timeout_ms": 60_000,
        "partitions": ["events-0", "events-2"],
        "start_timestamp": TIME_MS,
        "last_update_timestamp": TIME_MS + 1,
        "previous_producer_id": 7,
        "next_producer_id": -1,
        "client_version": 2,
    }
    assert forgotten["state"] is None
    assert "state PrepareCommit" in dump(file)[1]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0\x09id", b"\0\x63\0\x02id"])
def test_a_record_of_another_kind_is_said_to_be_one(tmp_path, key):
    code, said = dump(segment(tmp_path, NewRecord(b"value", key)), "--json")
    assert code == 1
    assert json.loads(said.splitlines()[-1])["position"] == 0
    assert "damage" in said
