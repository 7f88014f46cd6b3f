"""Keys and values of `__transaction_state`: byte for byte what Kafka writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import CorruptRecordError
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.records import read_key, read_value, transaction_record
from millrace_broker.txns.state import COMPLETE, OPEN, TransactionMetadata, TransactionState

# Of Apache Kafka 3.9 and 4.1: an id without a transaction, and one with two partitions of two topics.
ONGOING = TransactionMetadata(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("bc", 1)}),
    start_timestamp_ms=1_700_000_000_000,
    last_update_timestamp_ms=1_700_000_000_005,
)
LONGS = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text("abc", min_size=1, max_size=3), st.integers(0, 9)))


def metadata(**fields):
    return ONGOING._replace(**fields)


def test_an_id_without_a_transaction():
    empty = TransactionMetadata(producer_id=1, producer_epoch=0, timeout_ms=1000, last_update_timestamp_ms=2)
    key, value = transaction_record("id", empty)
    assert key == bytes.fromhex("0000 0002 6964")
    assert value == bytes.fromhex("0000 0000000000000001 0000 000003e8 00 ffffffff 0000000000000002 ffffffffffffffff")
    assert (read_key(key), read_value(value)) == ("id", empty)


def test_a_plain_value():
    _, value = transaction_record("id", ONGOING)
    assert value == bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01"
        "00000002 0001 61 00000002 00000000 00000002 0002 6263 00000001 00000001"
        "0000018bcfe56805 0000018bcfe56800"
    )
    assert read_value(value) == ONGOING


def test_a_flexible_value_holds_what_only_new_clients_need():
    kept = metadata(client_version=2, previous_producer_id=7, next_producer_id=9)
    _, value = transaction_record("id", kept)
    assert value == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "03 02 61 03 00000000 00000002 00 03 6263 02 00000001 00"
        "0000018bcfe56805 0000018bcfe56800"
        "03 00 08 0000000000000007 01 08 0000000000000009 02 02 0002"
    )
    assert read_value(value) == kept


def test_a_tombstone():
    assert transaction_record("id", None).value is None


@given(
    LONGS, st.integers(0, 32767), st.integers(0, 2**31 - 1),
    st.sampled_from([*OPEN, *COMPLETE]), PARTITIONS, LONGS, LONGS,
    LONGS, st.integers(1, 3),
)  # fmt: skip
def test_what_is_kept_comes_back(producer_id, epoch, timeout_ms, state, partitions, start, update, other, version):  # noqa: PLR0917
    kept = TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        start_timestamp_ms=start,
        last_update_timestamp_ms=update,
        previous_producer_id=other,
        next_producer_id=other,
        client_version=version,
    )
    assert read_value(transaction_record("id", kept).value) == kept


@pytest.mark.parametrize(
    "value", ["", "00", "0002", "0000 0000000000000001 0000", "0000" + "00" * 14 + "09" + "00" * 20]
)
def test_other_bytes_are_no_value(value):
    with pytest.raises(CorruptRecordError):
        read_value(bytes.fromhex(value))


def test_other_bytes_are_no_key():
    assert read_key(bytes.fromhex("0001 0002 6964")) is None
    with pytest.raises(CorruptRecordError):
        read_key(b"\0")
    with pytest.raises(CorruptRecordError):
        read_key(bytes.fromhex("0000 0009 6964"))
