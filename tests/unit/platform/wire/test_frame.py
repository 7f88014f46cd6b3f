"""Frames and request headers, whole and cut at every place."""

from itertools import cycle
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import FrameSizeError, MalformedRequestError
from millrace.wire.api import ApiKey
from millrace.wire.frame import FrameBuffer, framed
from millrace.wire.header import encode_request_header, read_request_header


def feed(buffer, stream, cuts):
    """Hand the stream over in reads of the given sizes; the frames that came out."""
    frames, position = [], 0
    while position < len(stream):
        space = buffer.writable()
        size = max(1, min(len(space), len(stream) - position, next(cuts)))
        space[:size] = stream[position : position + size]
        del space
        frames += [bytes(frame) for frame in buffer.received(size)]
        position += size
    return frames


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    cuts=st.lists(st.integers(1, 400), min_size=1),
    scratch=st.integers(8, 500),
)
def test_frames_come_out_whole_however_the_stream_is_cut(bodies, cuts, scratch):
    def forever():
        while True:
            yield from cuts

    buffer = FrameBuffer(bytearray(scratch), max_frame_bytes=1000)
    assert feed(buffer, b"".join(framed(body) for body in bodies), forever()) == bodies


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    cuts=st.lists(st.integers(1, 400), min_size=1),
    scratch=st.integers(8, 500),
    returned=st.lists(st.booleans(), min_size=1),
)
def test_a_body_that_is_kept_stays_as_it_is_until_its_memory_is_given_back(bodies, cuts, scratch, returned):
    stream, position = b"".join(framed(body) for body in bodies), 0
    buffer = FrameBuffer(bytearray(scratch), max_frame_bytes=1000, is_shared=False)
    cuts, returned, kept, count = cycle(cuts), cycle(returned), [], 0
    with patch("millrace.wire.frame.COPIED_BYTES_MAX", 3):
        while position < len(stream):
            space = buffer.writable()
            size = min(len(space), len(stream) - position, next(cuts))
            space[:size] = stream[position : position + size]
            position += size
            for frame in buffer.received(size):
                kept.append((count, buffer.keep(frame)))
                count += 1
            assert all(body == bodies[index] for index, body in kept)
            if kept and next(returned):
                buffer.give_back(kept.pop()[1][:0])
    assert count == len(bodies)


def test_a_large_body_is_kept_without_a_copy_and_its_memory_is_used_again():
    first, second = bytearray(1 << 20), bytearray(1 << 20)
    buffer = FrameBuffer(first, max_frame_bytes=1 << 20, is_shared=False)
    buffer.give_back(memoryview(second))
    for memory, other in ((first, second), (second, first)):
        data = framed(bytes(500_000))
        for part in (data[:100], data[100:]):
            buffer.writable()[: len(part)] = part
            bodies = [buffer.keep(body) for body in buffer.received(len(part))]
        assert bodies[0].obj is memory
        assert buffer.writable().obj is other
        buffer.give_back(bodies[0])


def test_a_large_frame_takes_memory_only_as_it_arrives():
    buffer = FrameBuffer(bytearray(1 << 16), max_frame_bytes=100 << 20)
    space = buffer.writable()
    space[:8] = (90 << 20).to_bytes(4, "big") + b"abcd"
    assert list(buffer.received(8)) == []
    assert len(buffer.writable()) < 1 << 20


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused(size):
    buffer = FrameBuffer(bytearray(100), max_frame_bytes=1000)
    buffer.writable()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(FrameSizeError, match=str(size)):
        list(buffer.received(4))


@pytest.mark.parametrize("version", [0, 3])
def test_a_header_comes_back(version):
    frame = encode_request_header(ApiKey.API_VERSIONS, version, 7, "cli") + b"body"
    header = read_request_header(memoryview(frame))
    assert header[:4] == (ApiKey.API_VERSIONS, version, 7, "cli")
    assert frame[header.body_position :] == b"body"


def test_the_first_header_of_a_controlled_shutdown_has_no_client_id():
    header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 0, 7, "cli")
    assert len(header) == 8
    for broker_id in (1, 0x0010_FF00):
        read = read_request_header(memoryview(header + broker_id.to_bytes(4, "big")))
        assert (read.correlation_id, read.client_id, read.body_position) == (7, None, len(header))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_a_typed_error(frame):
    try:
        header = read_request_header(memoryview(frame))
    except MalformedRequestError:
        return
    assert 0 < header.body_position <= len(frame)
