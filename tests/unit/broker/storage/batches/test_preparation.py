"""What is done with produced batches before they are appended (storage.batches.preparation)."""

import tracemalloc

import pytest

from millrace.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from millrace.records.batch import NO_TIMESTAMP, read_header, walk
from millrace.records.compression import CHUNK_BYTES, DECOMPRESSED_LIMIT_BYTES, Codec, compress, decompress
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.storage import LogConfig
from millrace_broker.storage.batches.preparation import finished, finished_within, prepare, uncompressed_limit_bytes
from millrace_broker.storage.config import LOG_APPEND_TIME
from millrace_support.lying_batches import (
    BASE_TIMESTAMP_MS,
    BATCH_LIES,
    BLOCK_LIES,
    RECORD_LIES,
    Draft,
    Parts,
)

NOW_MS = BASE_TIMESTAMP_MS
CONFIG = LogConfig(max_message_bytes=8 << 20)
TARGETS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
CODECS = [codec for codec in Codec if codec is not Codec.NONE]
MEGABYTE = 1 << 20
HARMLESS = {  # what is taken, as it can be read
    "a record's attributes",
    "a timestamp beyond 64 bits",
}
BEHIND = "a block with bytes behind it"


def stored(batch, config=CONFIG):
    return bytes(finished(prepare(batch, config, NOW_MS)).view)


def bomb(codec, size_bytes, level=None):
    """A batch whose only record would have a value of so many zeros."""
    record = Parts(0, value=b"", value_length=size_bytes, length=size_bytes + 20).encoded()
    return Draft((Parts(0),), codec, body=record + bytes(size_bytes)).sealed()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("lie", [*RECORD_LIES, *BATCH_LIES, *BLOCK_LIES])
def test_a_batch_that_lies_is_refused_in_every_codec(codec, lie):
    batch = (RECORD_LIES | BATCH_LIES | BLOCK_LIES)[lie](Draft((Parts(0), Parts(1), Parts(2)), codec), 1).sealed()
    if lie in HARMLESS or (lie == BEHIND and codec in {Codec.GZIP, Codec.LZ4}):
        assert [record.offset for record in decode_records(stored(batch))] == [0, 1, 2]
        return
    with pytest.raises(InvalidRecordError):
        stored(batch)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [-7, NO_TIMESTAMP, 1, 2**62])
def test_the_largest_time_is_that_of_the_records(codec, claimed):
    draft = Draft((Parts(0, 5), Parts(1, 9), Parts(2, 7)), codec, header={"max_timestamp": claimed})
    batch = stored(draft.sealed())
    ((_, header),) = walk(batch)
    assert header.max_timestamp == BASE_TIMESTAMP_MS + 9
    assert [record.timestamp_ms - BASE_TIMESTAMP_MS for record in decode_records(batch)] == [5, 9, 7]


def test_a_log_that_sets_the_time_itself_leaves_it_alone():
    batch = Draft((Parts(0),), header={"max_timestamp": 7}).sealed()
    assert stored(batch, LogConfig(message_timestamp_type=LOG_APPEND_TIME)) == batch


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_in_another_codec_keeps_all_but_the_codec(codec, target):
    records = [NewRecord(b"value" * 50, b"key", 1000 + index, (("h", b"x"),)) for index in range(5)]
    batch = encode_batch(records, codec=codec, producer=BatchProducer(9, 2, 30))
    kept = stored(batch, LogConfig(compression_type=target))
    before, after = read_header(batch), read_header(kept)
    assert after.codec_id == (0 if target == "uncompressed" else Codec[target.upper()])
    assert before[6:] == after[6:]
    assert list(decode_records(kept)) == list(decode_records(batch))
    assert after.codec_id != codec or kept == batch


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_that_lies_is_refused_by_a_topic_with_a_codec(target):
    config = LogConfig(compression_type=target)
    for codec in Codec:
        with pytest.raises(InvalidRecordError):
            stored(BATCH_LIES["all offset deltas 0"](Draft((Parts(0), Parts(1)), codec), 0).sealed(), config)


def test_what_is_too_large_as_it_comes_is_refused_though_it_would_shrink():
    batch = encode_batch([NewRecord(bytes(5000))])
    with pytest.raises(RecordTooLargeError):
        stored(batch, LogConfig(compression_type="gzip", max_message_bytes=1000))
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        stored(bytes(damaged), LogConfig(compression_type="gzip"))


def test_what_is_too_large_in_the_topics_codec_is_refused():
    batch = encode_batch([NewRecord(bytes(5000))], codec=Codec.GZIP)
    with pytest.raises(RecordTooLargeError):
        stored(batch, LogConfig(compression_type="uncompressed", max_message_bytes=1000))


@pytest.mark.parametrize("target", ["producer", "gzip"])
def test_times_out_of_range_are_refused_in_any_codec_of_the_topic(target):
    config = LogConfig(compression_type=target, message_timestamp_after_max_ms=5)
    stored(Draft((Parts(0, 5),), Codec.ZSTD).sealed(), config)
    with pytest.raises(InvalidTimestampError):
        stored(Draft((Parts(0, 6),), Codec.ZSTD).sealed(), config)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_costs_no_memory(codec):
    batch = bomb(codec, 40 * MEGABYTE)
    tracemalloc.start()
    with pytest.raises(InvalidRecordError):
        stored(batch)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < MEGABYTE + len(batch)


def test_a_bomb_is_not_gone_through_to_its_end():
    batch = bomb(Codec.ZSTD, DECOMPRESSED_LIMIT_BYTES)
    with pytest.raises(RecordTooLargeError, match="holds more than"):
        stored(batch)


def test_a_block_of_snappy_can_not_claim_more_than_it_can_hold():
    claim = b"\xff\xff\xff\xff\x07" + bytes(20)
    batch = Draft((Parts(0),), Codec.SNAPPY, block=lambda _: claim).sealed()
    with pytest.raises(InvalidRecordError, match="claims to hold 2147483647"):
        stored(batch)


def test_a_block_that_a_topic_compresses_again_has_a_lower_limit():
    config = LogConfig(compression_type="gzip")
    batch = bomb(Codec.ZSTD, uncompressed_limit_bytes(config))
    with pytest.raises(RecordTooLargeError, match="holds more than"):
        stored(batch, config)


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
def test_a_preparation_can_be_interrupted(codec):
    batch = encode_batch([NewRecord(b"%d" % number * 50) for number in range(20_000)], codec=codec)
    steps = prepare(batch, CONFIG, NOW_MS)
    assert finished_within(steps, 2 * CHUNK_BYTES)[0] is None or codec is Codec.SNAPPY
    assert bytes(finished(prepare(batch, CONFIG, NOW_MS)).view) == batch
    if codec is not Codec.SNAPPY:
        assert bytes(finished(steps).view) == batch
    assert finished_within(prepare(batch, CONFIG, NOW_MS), 1 << 30)[0] is not None


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, 1, 19), (Codec.ZSTD, -5, 3)]
)
def test_levels_are_obeyed(codec, low, high):
    data = b"".join(b"record %d of many;" % (index * index) for index in range(20_000))
    sizes = [len(compress(codec, data, level)) for level in (low, high)]
    assert sizes[0] > sizes[1]
    assert decompress(codec, compress(codec, data, high)) == data
