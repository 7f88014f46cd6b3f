"""One batch, one pass: what stays of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import (
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    check_crc,
    compute_crc,
    read_header,
)
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_batch, encode_batch
from millrace_broker.storage.cleaner.batches import CleaningRules, LastRecord, OffsetMap, RecordCounts, cleaned

BASE = 100
NOW_MS = 1_000_000
RETENTION_MS = 5000


def made(records: Sequence[NewRecord], *, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    batch = bytearray(encode_batch(records, base_offset=BASE, codec=codec))
    header = read_header(batch)
    HEADER.pack_into(
        batch, 0, *header._replace(**fields | {"attributes": header.attributes | fields.get("attributes", 0)})
    )
    batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    return bytes(batch)


def rules(latest: dict[bytes, int], *, end_offset: int = 1000, now_ms: int = NOW_MS, **last: int) -> CleaningRules:
    offsets = OffsetMap(1 << 12, 100)
    for key, offset in latest.items():
        assert offsets.put(key, offset)
    return CleaningRules(
        latest=offsets,
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        last_records={7: LastRecord(last["last"], 3)} if last else {},
    )


def clean(batch: bytes, the_rules: CleaningRules) -> tuple[bytes | None, RecordCounts]:
    counts = RecordCounts()
    left = cleaned(read_header(batch), memoryview(batch), the_rules, counts)
    return None if left is None else bytes(left), counts


def opened(batch: bytes | None) -> tuple[BatchHeader, list[Record]]:
    assert batch is not None
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    check_crc(batch, 0, header)
    return header, list(decode_batch(header, memoryview(batch)))


def values(*keys: bytes, at: int = 500) -> list[NewRecord]:
    return [
        NewRecord(b"value of " + key, key=key, timestamp_ms=at + slot, headers=(("h", key),))
        for slot, key in enumerate(keys)
    ]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_which_nothing_goes_stays_byte_for_byte(codec: Codec) -> None:
    batch = made(values(b"a", b"b"), codec=codec)
    left, counts = clean(batch, rules({b"a": BASE, b"c": 900}))
    assert left == batch
    assert counts == RecordCounts(kept=2)


@pytest.mark.parametrize("codec", Codec)
def test_superseded_records_go_and_the_rest_of_the_batch_stays_as_it_was(codec: Codec) -> None:
    sent = values(b"a", b"b", b"a", b"c")
    batch = made(sent, codec=codec, producer_id=7, producer_epoch=3, base_sequence=40, partition_leader_epoch=5)
    left, counts = clean(batch, rules({b"a": BASE + 2, b"c": 900}))
    header, records = opened(left)
    before = read_header(batch)
    changed = {"batch_length", "crc", "record_count", "max_timestamp"}
    assert {name for name in header._fields if getattr(header, name) != getattr(before, name)} <= changed
    assert (header.record_count, header.max_timestamp, header.codec_id) == (2, 502, codec)
    assert [(record.offset, record.key, record.value, record.timestamp_ms, record.headers) for record in records] == [
        (BASE + slot, sent[slot].key, sent[slot].value, 500 + slot, sent[slot].headers) for slot in (1, 2)
    ]
    assert counts == RecordCounts(kept=2, dropped=2)


def test_what_the_pass_has_not_mapped_stays() -> None:
    batch = made(values(b"a", b"a", b"a"))
    _, records = opened(clean(batch, rules({b"a": BASE + 1}, end_offset=BASE + 2))[0])
    assert [record.offset for record in records] == [BASE + 1, BASE + 2]
    assert clean(batch, rules({b"a": 5000}, end_offset=BASE))[0] == batch


def test_a_batch_of_which_all_goes_is_dropped_unless_it_bears_its_producers_last_sequence() -> None:
    batch = made(values(b"a", b"b"), codec=Codec.GZIP, producer_id=7, producer_epoch=3, base_sequence=40)
    superseded = {b"a": 900, b"b": 901}
    assert clean(batch, rules(superseded, last=BASE))[0] is None
    header, records = opened(clean(batch, rules(superseded, last=BASE + 1))[0])
    assert records == []
    assert (header.base_offset, header.last_offset) == (BASE, BASE + 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert clean(made(values(b"a")), rules(superseded, last=BASE))[0] is None


def test_records_without_a_key_go_and_are_counted() -> None:
    batch = made([NewRecord(b"x"), NewRecord(b"y", key=b""), NewRecord(None)])
    left, counts = clean(batch, rules({}))
    assert [record.key for record in opened(left)[1]] == [b""]
    assert counts == RecordCounts(kept=1, dropped=2, keyless_dropped=2)


def test_control_batches_stay() -> None:
    batch = made(values(b"a"), attributes=CONTROL_FLAG)
    assert clean(batch, rules({b"a": 900}))[0] == batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("time_flag", [0, TIMESTAMP_TYPE_FLAG])
def test_a_tombstone_gets_a_delete_horizon_and_goes_when_it_has_passed(codec: Codec, time_flag: int) -> None:
    batch = made([NewRecord(None, key=b"a", timestamp_ms=700), *values(b"b")], codec=codec, attributes=time_flag)
    before = opened(batch)[1]
    first, _ = clean(batch, rules({b"a": BASE}))
    header, records = opened(first)
    assert header.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert header.max_timestamp == 700
    assert records == before
    assert first is not None
    still, _ = clean(first, rules({}, now_ms=NOW_MS + RETENTION_MS - 1))
    assert still == first
    header, records = opened(clean(first, rules({}, now_ms=NOW_MS + RETENTION_MS))[0])
    assert records == before[1:]
    assert header.delete_horizon_ms == NOW_MS + RETENTION_MS


def test_a_tombstone_above_the_passes_end_gets_no_horizon_yet() -> None:
    batch = made([*values(b"b"), NewRecord(None, key=b"a", timestamp_ms=700)])
    assert clean(batch, rules({}, end_offset=BASE + 1))[0] == batch


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -(2**63) + NOW_MS])
def test_a_tombstone_of_a_time_that_no_delta_reaches_stays_as_it_is(timestamp_ms: int) -> None:
    batch = made([NewRecord(None, key=b"a", timestamp_ms=timestamp_ms)])
    assert clean(batch, rules({}))[0] == batch


def test_times_beyond_64_bits_stop_no_pass() -> None:
    for base_timestamp, kept_at in ((2**63 - 2, 2**63 - 1), (-(2**63), -(2**63))):
        times = (500, 900, 100) if base_timestamp > 0 else (500, 100, 200)
        batch = made([NewRecord(b"v", key=b"%d" % at, timestamp_ms=at) for at in times], base_timestamp=base_timestamp)
        left, counts = clean(batch, rules({b"500": 900}))
        assert left is not None
        assert (read_header(left).max_timestamp, counts.kept) == (kept_at, 2)


def test_offsets_that_are_not_the_batchs_are_an_error() -> None:
    for fields in ({"last_offset_delta": 0}, {"last_offset_delta": 0, "record_count": 2}):
        with pytest.raises(CorruptRecordError, match="offset delta 1 after 0, of 0 at most"):
            clean(made(values(b"a", b"b"), **fields), rules({}))


def test_a_delete_retention_without_end_gives_no_horizon() -> None:
    batch = made([NewRecord(None, key=b"a", timestamp_ms=5)])
    assert clean(batch, replace(rules({}), delete_retention_ms=2**63 - 1))[0] == batch


def test_a_superseded_tombstone_goes_at_once() -> None:
    assert clean(made([NewRecord(None, key=b"a")]), rules({b"a": 900}))[0] is None


def test_records_that_can_not_be_read_are_an_error() -> None:
    batch = made(values(b"a", b"b"))
    for wrong in ({"record_count": 1}, {"record_count": 3}):
        with pytest.raises(CorruptRecordError):
            clean(made(values(b"a", b"b"), **wrong), rules({}))
    for length in range(62, len(batch)):
        cut = memoryview(batch)[:length]
        with pytest.raises(CorruptRecordError):
            cleaned(read_header(batch), cut, rules({}), RecordCounts())
