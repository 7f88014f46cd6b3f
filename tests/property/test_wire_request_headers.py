"""The kernel's request headers beside those that Python reads: the same fields, or a header left to Python."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace import kernel
from millrace.errors import MalformedRequestError
from millrace.wire.header import FIRST_FLEXIBLE, FIXED, read_any_request_header, read_request_header

API_KEYS = st.one_of(st.integers(0, len(FIRST_FLEXIBLE) + 2), st.integers(-(2**15), 2**15 - 1))
VERSIONS = st.one_of(st.integers(-1, 20), st.sampled_from((254, 255, 256, 2**15 - 1)))
CLIENT_IDS = st.one_of(st.none(), st.text(max_size=8).map(str.encode), st.binary(max_size=8))
TAGGED_FIELDS = st.sampled_from((b"", b"\x00", b"\x01\x00\x02ab", b"\x01\x05", b"\x80\x00", b"\xff\xff\xff\xff\x7f"))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Draws frames whose parts fit each other or do not, whole and cut short."""
    client_id = draw(CLIENT_IDS)
    length = draw(st.one_of(st.just(-1 if client_id is None else len(client_id)), st.integers(-3, 12)))
    fixed = FIXED.pack(draw(API_KEYS), draw(VERSIONS), draw(st.integers(-(2**31), 2**31 - 1)), length)
    frame = fixed + (client_id or b"") + draw(TAGGED_FIELDS) + draw(st.binary(max_size=4))
    return frame[: draw(st.integers(0, len(frame)))] if draw(st.booleans()) else frame


@pytest.mark.skipif(kernel.native is None, reason="the kernel is not compiled here")
@given(frames())
@example(FIXED.pack(17, 300, 1, -1) + b"\x00")  # never flexible
@example(FIXED.pack(7, 0, 1, -1))  # ControlledShutdown v0 has no client id
@example(FIXED.pack(0, 9, 1, 3) + b"\xff\xfe\xfd\x00")
def test_the_kernel_reads_what_python_reads(frame: bytes) -> None:
    fields = kernel.native.request_header(memoryview(frame), FIRST_FLEXIBLE)
    try:
        expected = read_any_request_header(memoryview(frame))
    except MalformedRequestError as error:
        assert fields is None
        with pytest.raises(MalformedRequestError, match=re.escape(str(error))):
            read_request_header(memoryview(frame))
    else:
        assert fields in {None, expected}
        assert read_request_header(memoryview(frame)) == expected


@pytest.mark.skipif(kernel.native is None, reason="the kernel is not compiled here")
def test_the_kernel_reads_the_headers_that_clients_send() -> None:
    for key, first_flexible in enumerate(FIRST_FLEXIBLE):
        for version in {1, max(first_flexible - 1, 1), first_flexible}:
            frame = FIXED.pack(key, version, 5, 3) + b"app\x00"
            assert kernel.native.request_header(frame, FIRST_FLEXIBLE) == read_any_request_header(memoryview(frame))
