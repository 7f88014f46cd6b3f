"""Lists of listeners: what is parsed is what was written, and anything else is refused in words."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.addresses import Address
from millrace.errors import InvalidConfigError
from millrace.security.protocols import SecurityProtocol
from millrace_broker.properties.listeners import (
    NamedAddress,
    Override,
    check_ports,
    override,
    own_properties,
    parse_listeners,
    parse_protocols,
    protocol_of,
)

SSL, SASL_SSL = SecurityProtocol.SSL, SecurityProtocol.SASL_SSL
NAMES = st.from_regex(r"[A-Z0-9_-]{1,12}", fullmatch=True)
HOSTS = st.sampled_from(["localhost", "10.0.0.1", "::1", "kafka.example.com"])
LISTENERS = st.lists(
    st.builds(NamedAddress, NAMES, st.builds(Address, HOSTS, st.integers(0, 65_535))),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one.name,
)


@given(LISTENERS, st.sampled_from([",", " , ", ",,"]))
def test_what_is_written_is_parsed(listeners, separator):
    assert list(parse_listeners(separator.join(map(str, listeners)))) == listeners
    assert list(parse_listeners(separator.join(map(str, listeners)).lower())) == listeners


@given(LISTENERS)
def test_a_name_given_twice_is_refused(listeners):
    with pytest.raises(InvalidConfigError, match=f"two listeners have the name {listeners[0].name}"):
        parse_listeners(",".join(map(str, [*listeners, listeners[0]])))


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused_in_words(text):
    for parse in (parse_listeners, parse_protocols):
        with suppress(InvalidConfigError):
            parse(text)


@given(LISTENERS)
def test_ports_differ_except_between_kinds_of_addresses(listeners):
    taken = [(one.address.port, ":" in one.address.host) for one in listeners if one.address.port]
    if len(set(taken)) == len(taken):
        check_ports(listeners)
    else:
        with pytest.raises(InvalidConfigError, match="two listeners have the port"):
            check_ports(listeners)


@given(st.dictionaries(NAMES, st.sampled_from(SecurityProtocol), max_size=5))
def test_a_map_of_protocols_is_parsed(protocols):
    text = ",".join(f"{name}:{protocol.name}" for name, protocol in protocols.items())
    assert parse_protocols(text) == protocols
    assert all(protocol_of(name, protocols) is protocol for name, protocol in protocols.items())


def test_the_name_of_a_protocol_needs_no_entry():
    assert protocol_of("SSL", {}) is SSL
    with pytest.raises(InvalidConfigError, match="no protocol for listener OUTER"):
        protocol_of("OUTER", {})


def test_what_is_given_for_one_listener_holds_for_it_alone():
    properties = {
        "ssl.keystore.location": "/all",
        "listener.name.outer.ssl.keystore.location": "/outer",
        "ssl.client.auth": "required",
        "num.partitions": "1",
        "max.connections": "9",
        "listener.name.outer.max.connections": "5",
    }
    assert own_properties("OUTER", SSL, properties) == {
        "ssl.keystore.location": "/outer",
        "ssl.client.auth": "required",
    }
    assert own_properties("INNER", SASL_SSL, properties) == {"ssl.keystore.location": "/all"}
    own = {"listener.name.inner.ssl.client.auth": "required"}
    assert own_properties("INNER", SASL_SSL, properties | own)["ssl.client.auth"] == "required"


def test_the_name_of_an_override():
    assert override("listener.name.outer.ssl.key.password") == Override("OUTER", "ssl.key.password")
    assert override("listener.names.outer.ssl.key.password") is None


@pytest.mark.parametrize(
    ("name", "is_known", "secures"),
    [
        ("ssl.keystore.location", True, True),
        ("plain.sasl.jaas.config", True, True),
        ("max.connections", True, False),
        ("max.connection.creation.rate", True, False),
        ("num.network.threads", True, False),
        ("plain.max.connections", False, True),
        ("max.connections.per.ip", False, True),
    ],
)
def test_what_a_listener_may_have_for_itself(name, is_known, secures):
    found = override(f"listener.name.outer.{name}")
    assert (found.is_known, found.secures) == (is_known, secures)
