"""Who does not speak the protocol of the listener is told apart by the first bytes."""

import pytest

from millrace.errors import FrameSizeError, MalformedRequestError
from millrace_broker.net.foreign_protocols import IS_HTTP, NO_TLS, no_handshake, no_request

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303")
HTTP = (b"GET / HTTP/1.1", b"POST /x", b"HEAD /", b"PUT /", b"DELETE /", b"OPTIONS *", b"PATCH /", b"CONNECT a:1")


def refusal(first, *, uses_tls=False, uses_sasl=False):
    error = FrameSizeError(int.from_bytes(first[:4], "big", signed=True), 100 << 20)
    return no_request(error, uses_tls=uses_tls, uses_sasl=uses_sasl)


@pytest.mark.parametrize(("uses_sasl", "protocol"), [(False, "PLAINTEXT"), (True, "SASL_PLAINTEXT")])
def test_tls_where_there_is_none_is_told_with_the_remedy(uses_sasl, protocol):
    said = refusal(CLIENT_HELLO, uses_sasl=uses_sasl)
    assert said == f"it looks like TLS; its security.protocol must be {protocol} here"


@pytest.mark.parametrize("first", HTTP)
def test_http_is_told_on_every_listener(first):
    assert {refusal(first), refusal(first, uses_tls=True), no_handshake(first)} == {IS_HTTP}


@pytest.mark.parametrize("first", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x15\x03\x03\x00", b"GETS"])
def test_other_bytes_are_a_frame_of_a_wrong_size(first):
    assert refusal(first).startswith("frame of ")


def test_tls_inside_tls_and_what_is_no_frame_keep_their_own_words():
    assert refusal(CLIENT_HELLO, uses_tls=True).startswith("frame of ")
    assert no_request(MalformedRequestError("cut short"), uses_tls=False, uses_sasl=False) == "cut short"


def test_plain_text_at_a_listener_with_tls():
    assert no_handshake(CLIENT_HELLO) is None
    assert no_handshake(b"\x00\x00\x00\x14\x00\x12") == NO_TLS
    assert no_handshake(b"G") == NO_TLS
