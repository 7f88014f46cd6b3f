"""`HOST:PORT`, for clients, for servers, and in lists."""

import pytest

from millrace.addresses import Address, is_loopback, parse_address, parse_addresses, parse_listen_address
from millrace.errors import InvalidConfigError

TOO_LONG = "h:" + "9" * 5000  # more digits than Python's int() reads


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        (" h:00080 ", Address("h", 80)),
    ],
)
def test_clients_and_servers_read_the_same_addresses(text, address):
    assert parse_address(text) == parse_listen_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::]:0", Address("::", 0)),
        (":9092", Address("0.0.0.0", 9092)),
    ],
)
def test_a_server_may_leave_out_host_and_port(text, address):
    assert parse_listen_address(text) == address
    with pytest.raises(InvalidConfigError):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected HOST:PORT"),
        ("host", "expected HOST:PORT"),
        ("9092", "expected HOST:PORT"),
        ("host:", "expected HOST:PORT"),
        ("host:x", "expected HOST:PORT"),
        ("host:-1", "expected HOST:PORT"),
        ("host:٤٢", "expected HOST:PORT"),
        ("::1:9092", "expected HOST:PORT"),
        ("[::1:9092", "expected HOST:PORT"),
        ("[]:9092", "expected HOST:PORT"),
        ("PLAINTEXT://h:9092", "expected HOST:PORT"),
        ("host:65536", "and 65535"),
        (TOO_LONG, "and 65535"),
    ],
)
@pytest.mark.parametrize("parse", [parse_address, parse_listen_address])
def test_what_is_no_address_is_named(parse, text, expected):
    with pytest.raises(InvalidConfigError) as caught:
        parse(text)
    assert str(caught.value).startswith(repr(text))
    assert str(caught.value).endswith(expected)


@pytest.mark.parametrize(("host", "is_every"), [("0.0.0.0", True), ("::", True), ("::1", False), ("h", False)])
def test_no_client_can_connect_to_every_address(host, is_every):
    assert Address(host, 1).is_every_address is is_every


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "::1"), ("h", "h")]
)
def test_this_machine_reaches_a_server_of_every_address_by_loopback(host, reached):
    assert Address(host, 1).from_this_machine == Address(reached, 1)


def test_a_list_keeps_its_order_and_forgives_a_last_comma():
    assert parse_addresses("b:2,a:1,") == (Address("b", 2), Address("a", 1))


@pytest.mark.parametrize("text", ["", " , ", "a:1,b"])
def test_a_list_needs_addresses(text):
    with pytest.raises(InvalidConfigError):
        parse_addresses(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.8.9.1", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.1", False), ("host", False)],
)
def test_only_this_machine_reaches_loopback(host, expected):
    assert is_loopback(host) is expected
