"""From a stream of bytes to batches of records."""

import os
import threading

import pytest

from millrace.errors import InvalidRecordError
from millrace.records.record import NewRecord, encode_batch
from millrace_ops.cli.produce import CHUNK_BYTES, Line, LineFormat, Placed, batches_of, lines_of, records_of_lines


@pytest.fixture
def pipe():
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as reader, os.fdopen(write_fd, "wb", buffering=0) as writer:
        yield reader.fileno(), writer


def test_lines_are_given_as_soon_as_the_input_pauses(pipe):
    fd, writer = pipe
    lines = lines_of(fd)
    writer.write(b"one\ntwo\nthr")
    assert next(lines) == [Line(1, b"one"), Line(2, b"two")]
    writer.write(b"ee\n\n")
    assert next(lines) == [Line(3, b"three"), Line(4, b"")]


def test_a_last_line_needs_no_end(pipe):
    fd, writer = pipe
    writer.write(b"a\nb")
    writer.close()
    assert [line for lines in lines_of(fd) for line in lines] == [Line(1, b"a"), Line(2, b"b")]


def test_an_empty_input_has_no_lines(pipe):
    fd, writer = pipe
    writer.close()
    assert list(lines_of(fd)) == []


def test_a_long_stream_comes_whole_and_in_chunks(pipe):
    fd, writer = pipe
    expected = [b"%d" % number * 50 for number in range(20_000)]

    def write():
        writer.write(b"\n".join(expected) + b"\n")
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    chunks = list(lines_of(fd))
    thread.join()
    assert [line for lines in chunks for line in lines] == [Line(*one) for one in enumerate(expected, 1)]
    assert all(sum(len(line.text) for line in lines) <= CHUNK_BYTES + len(expected[-1]) for lines in chunks)


def read(lines, timestamp_ms=7, **form):
    return [one.record for one in records_of_lines(map(Line, range(1, 9), lines), LineFormat(**form), timestamp_ms)]


def test_keys_stand_before_the_first_separator():
    records = read([b"k:v:w", b":v", b"k:"], separator=b":", headers=(("h", b"x"),))
    assert [(record.key, record.value) for record in records] == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]
    assert {(record.timestamp_ms, record.headers) for record in records} == {(7, (("h", b"x"),))}


def test_without_a_separator_there_are_no_keys():
    assert list(records_of_lines([Line(5, b"k:v")], LineFormat(), 7)) == [Placed(5, NewRecord(b"k:v", None, 7, ()))]


def test_what_equals_the_null_marker_is_null():
    records = read([b"k:NIL", b"NIL:v", b"k:NILS", b"k:"], separator=b":", null_marker=b"NIL", headers=(("h", b"NIL"),))
    assert [(record.key, record.value) for record in records] == [
        (b"k", None), (None, b"v"), (b"k", b"NILS"), (b"k", b"")
    ]  # fmt: skip
    assert {record.headers for record in records} == {(("h", None),)}


def test_without_a_null_marker_nothing_is_null():
    assert [record.value for record in read([b"", b"null"])] == [b"", b"null"]


def test_a_line_without_its_separator_is_named():
    with pytest.raises(InvalidRecordError, match="line 2: no key separator '::' in b'plain'"):
        read([b"a::b", b"plain"], separator=b"::")


@pytest.mark.parametrize("value_bytes", [0, 1, 100, 1000])
def test_batches_keep_order_and_stay_below_their_size(value_bytes):
    records = [NewRecord(b"%04d" % number + bytes(value_bytes)) for number in range(500)]
    batches = list(batches_of(records, max_bytes=4000))
    assert [record for batch in batches for record in batch] == records
    assert all(len(encode_batch(batch)) < 4100 for batch in batches)
    assert len(batches) < 500


def test_a_large_record_is_a_batch_of_its_own():
    small, large = NewRecord(b"s"), NewRecord(bytes(10_000))
    assert list(batches_of([small, large, small], max_bytes=4000)) == [[small], [large], [small]]
