"""Records as Apache Kafka writes them: bytes of its Java client 3.9.1.

`data/kafka_records.json` holds, in hex, what `MemoryRecords.builder` made of three records in every format, codec and
kind of time ("built"), and what `MemoryRecords.downConvert` made of its v2 batches ("down-converted").
"""

import json
from pathlib import Path

import pytest

from millrace.records.convert import down_convert, up_convert
from millrace.records.message_set import decode_message_set, decompress_block, encode_message_set, walk_messages
from millrace.records.record import Record, decode_records

FILE = Path(__file__).with_name("data") / "kafka_records.json"
WRITTEN = {name: bytes.fromhex(text) for name, text in json.loads(FILE.read_text(encoding="utf-8")).items()}
SETS = [name for name in WRITTEN if " v2 " not in name]
BATCHES = [name for name in WRITTEN if " v2 " in name]
DOWN_CONVERTED = [name for name in SETS if name.startswith("down-converted")]


def magic_of(name):
    return int(name.split()[1].removeprefix("v"))


def expected(name):
    timestamps = [1005, 1006, 1009]
    if name.endswith("log-append-time"):
        timestamps = [1009] * 3
    if magic_of(name) == 0:
        timestamps = [-1] * 3
    fields = [(5, b"k", b"vvv"), (6, None, b"w" * 40), (9, b"q", None)]
    return [Record(offset, time, key, value) for (offset, key, value), time in zip(fields, timestamps, strict=True)]


def opened(message_set):
    """The messages field by field, the values of wrappers decompressed: compressors may differ, nothing else."""
    messages = [message for _, message in walk_messages(message_set)]
    return [
        (one.offset, one.attributes, one.timestamp_ms, one.key, decompress_block(one.codec, one.value or b"", 1000))
        for one in messages
    ]


def test_all_forms_are_there():
    assert (len(SETS), len(BATCHES)) == (28, 10)


@pytest.mark.parametrize("name", SETS)
def test_message_sets_are_read(name):
    assert list(decode_message_set(WRITTEN[name])) == expected(name)


@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_read(name):
    assert list(decode_records(WRITTEN[name])) == expected(name)


@pytest.mark.parametrize("name", SETS)
def test_message_sets_go_up(name):
    assert list(decode_records(up_convert(WRITTEN[name]))) == expected(name)


@pytest.mark.parametrize("name", DOWN_CONVERTED)
def test_batches_go_down_as_in_kafka(name):
    _, _, codec, time = name.split()
    converted = down_convert(WRITTEN[f"built v2 {codec} {time}"], magic_of(name))
    assert list(decode_message_set(converted)) == expected(name)
    assert opened(converted) == opened(WRITTEN[name])


@pytest.mark.parametrize("name", [name for name in SETS if " none " in name])
def test_messages_without_a_codec_are_the_same_bytes(name):
    assert (
        encode_message_set(expected(name), magic=magic_of(name), log_append_time=name.endswith("log-append-time"))
        == WRITTEN[name]
    )
