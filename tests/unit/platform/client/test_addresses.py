"""`HOST:PORT` lists."""

import pytest

from millrace.client.addresses import Address, parse_address, parse_bootstrap
from millrace.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" 10.0.0.1:1 ", Address("10.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_is_parsed_and_printed_back(text, address):
    assert parse_address(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "host", ":9092", "host:", "host:x", "host:0", "host:65536", "h:" + "9" * 5000, "::1:9092", "[]:9092"]
)
def test_what_is_no_address_is_named(text):
    with pytest.raises(InvalidConfigError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


def test_a_list_keeps_its_order_and_forgives_a_last_comma():
    assert parse_bootstrap("b:2,a:1,") == (Address("b", 2), Address("a", 1))


@pytest.mark.parametrize("text", ["", " , ", "a:1,b"])
def test_a_list_needs_addresses(text):
    with pytest.raises(InvalidConfigError):
        parse_bootstrap(text)
