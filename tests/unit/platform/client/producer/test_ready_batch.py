"""A ready batch goes out as it is: only what belongs to the producer and the log changes; nothing wrong is taken."""

import pytest

from millrace.client.producer.accumulator import Accumulator, PartitionQueue
from millrace.client.producer.batch import NOBODY, Identity
from millrace.client.producer.link import Produced, error_of
from millrace.client.producer.ready_batch import checked_header
from millrace.client.producer.settings import parse_settings
from millrace.clock import SystemClock
from millrace.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    QueueFullError,
    RecordTooLargeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from millrace.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    check_crc,
    read_header,
    sealed_batch,
)
from millrace.records.compression import Codec
from millrace.records.message_set import encode_message_set
from millrace.records.record import BatchProducer, NewRecord, Record, encode_batch

RECORDS = [NewRecord(b"v%d" % n, b"k", 1000 - n) for n in range(3)]
BOB, CAROL = Identity(9, 2), Identity(9, 2, is_transactional=True)


def fetched(codec=Codec.NONE, flags=0):
    return encode_batch(RECORDS, base_offset=70, codec=codec, producer=BatchProducer(5, 1, 33), flags=flags)


def changed(**changes):
    return sealed_batch(read_header(fetched())._replace(**changes), fetched()[HEADER_BYTES:])


def accumulator(**properties):
    settings, _ = parse_settings({"broker.list": "localhost:1"}, properties)
    return Accumulator(settings, lambda: None, lambda _: None, SystemClock())


def added(to, data, on_delivery=None):
    return to.append_batch("t", 0, checked_header("t", 0, data), data, on_delivery)


def one_of(data):
    made = accumulator()
    added(made, data)
    return made.queues["t", 0].waiting[0]


@pytest.mark.parametrize("identity", [NOBODY, BOB, CAROL])
@pytest.mark.parametrize("flags", [0, TRANSACTIONAL_FLAG, DELETE_HORIZON_FLAG])
@pytest.mark.parametrize("codec", Codec)
def test_the_header_is_that_of_its_producer_and_the_rest_stays(codec, flags, identity):
    source = fetched(codec, flags)
    batch = one_of(source)
    batch.identity, batch.sequence = identity, 40
    sent, before = batch.encode(Codec.GZIP), read_header(source)
    header = read_header(sent)
    check_crc(sent, 0, header)
    assert sent[HEADER_BYTES:] == source[HEADER_BYTES:]
    assert header == before._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        crc=header.crc,
        attributes=codec | (TRANSACTIONAL_FLAG if identity.is_transactional else 0),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=40,
    )


V1 = encode_message_set([Record(0, 1, b"k", b"v" * 100)], magic=1)
BAD = {
    "no batch": (b"short", InvalidRecordError, "5 bytes are no batch"),
    "nothing": (b"", InvalidRecordError, "0 bytes are no batch"),
    "cut": (fetched()[:-1], InvalidRecordError, "not one batch"),
    "two": (fetched() + fetched(), InvalidRecordError, "not one batch"),
    "CRC": (fetched()[:-1] + b"!", CorruptRecordError, "CRC-32C"),
    "magic": (V1, UnsupportedMagicError, "message format v1"),
    "control": (fetched(flags=CONTROL_FLAG), InvalidRecordError, "control batch"),
    "log append time": (fetched(flags=TIMESTAMP_TYPE_FLAG), InvalidRecordError, "rebatch"),
    "gaps": (changed(last_offset_delta=7), InvalidRecordError, "3 records for 8 offsets"),
    "empty": (sealed_batch(read_header(changed(record_count=0)), b""), InvalidRecordError, "0 records for 3 offsets"),
    "codec": (changed(attributes=6), UnsupportedCodecError, "codec"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "error", "says"), BAD.values(), ids=BAD)
def test_what_is_no_batch_to_send_is_named(data, error, says):
    with pytest.raises(error, match=says) as raised:
        checked_header("t", 3, data)
    assert str(raised.value).startswith("a batch for t-3 is not sent: ")


def test_it_keeps_its_order_and_its_numbers_among_records():
    made = accumulator()
    made.append("t", 0, b"first", None, (), 5, None)
    added(made, fetched())
    made.append("t", 0, b"last", None, (), 5, None)
    queue: PartitionQueue = made.queues["t", 0]
    queue.close_open()
    taken = [queue.take(BOB) for _ in range(3)]
    assert [(batch.count, batch.sequence) for batch in taken] == [(1, 0), (3, 1), (1, 4)]


def test_it_takes_room_until_it_is_done():
    made = accumulator(queue_size=3, queue_enqueue_timeout_ms=0)
    data = fetched()
    added(made, data)
    assert (made.record_count, made.size_bytes) == (3, len(data))
    with pytest.raises(QueueFullError):
        added(made, data)
    with made.lock:
        made.release(made.queues["t", 0].waiting[0])
    assert (made.record_count, made.size_bytes) == (0, 0)


def test_the_report_is_that_of_its_first_record():
    told = []
    made = accumulator()
    delivery = added(made, fetched(), told.append)
    batch = made.queues["t", 0].waiting[0]
    batch.finish(None, 12)
    report = delivery.result()
    assert (report.offset, report.timestamp_ms, report.error) == (12, 1000, None)
    assert [index for index, _ in batch.callbacks] == [0]


def test_too_large_it_fails_with_its_size():
    batch = one_of(fetched())
    assert not batch.may_be_split
    error = error_of(Produced("t", 0, ErrorCode.MESSAGE_TOO_LARGE, -1, -1, None), batch.subject)
    assert isinstance(error, RecordTooLargeError)
    assert str(error).startswith(f"produce to t-0 of a ready batch of {len(fetched())} bytes: ")
