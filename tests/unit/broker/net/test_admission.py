"""Who may connect."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_broker.net.admission import Admission
from millrace_broker.properties.listeners import ConnectionLimits


def limits(connections, per_ip, overrides="", **of_listeners):
    return ConnectionLimits.from_properties(
        {
            "max.connections": str(connections),
            "max.connections.per.ip": str(per_ip),
            "max.connections.per.ip.overrides": overrides,
            **{f"listener.name.{name}.max.connections": str(limit) for name, limit in of_listeners.items()},
        }
    )


def admitted(admission, limits, *connections):
    """What is said of connections, each an address or the name of a listener."""
    return [
        admission.admit("10.0.0.1", one, limits) if one.isalpha() else admission.admit(one, "OUTER", limits)
        for one in connections
    ]


def test_connections_are_limited_in_all_and_by_address():
    admission, given = Admission(), limits(3, 2)
    assert admitted(admission, given, "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3") == [
        None,
        None,
        "max.connections.per.ip=2",
        None,
        "max.connections=3",
    ]
    admission.leave("10.0.0.1", "OUTER")
    assert admission.admit("10.0.0.1", "OUTER", given) is None
    assert admission.total == 3


def test_an_address_may_have_a_limit_of_its_own():
    admission, given = Admission(), limits(100, 1, "127.0.0.1:2, [::1]:0")
    assert admitted(admission, given, *["127.0.0.1"] * 3) == [None, None, "max.connections.per.ip=2"]
    assert admitted(admission, given, "::1", "127.0.0.2") == ["max.connections.per.ip=0", None]


def test_a_listener_has_its_own_limit_below_that_of_all():
    admission, given = Admission(), limits(4, 100, outer=2)
    assert admitted(admission, given, *["OUTER"] * 3) == [None, None, "max.connections=2 of listener OUTER"]
    assert admitted(admission, given, *["INNER"] * 3) == [None, None, "max.connections=4"]
    admission.leave("10.0.0.1", "OUTER")
    assert admitted(admission, given, "OUTER", "INNER") == [None, "max.connections=4"]


def test_clients_that_have_taken_all_connections_keep_no_broker_out():
    admission, given = Admission(spared_listener="BROKERS"), limits(2, 100)
    assert admitted(admission, given, *["OUTER"] * 3) == [None, None, "max.connections=2"]
    assert admitted(admission, given, *["BROKERS"] * 3) == [None, None, "max.connections=2 of listener BROKERS"]
    admission.leave("10.0.0.1", "OUTER")
    assert admitted(admission, given, "OUTER") == ["max.connections=2"], "connections of brokers count as all others"
    assert admitted(admission, limits(2, 100, brokers=3), "BROKERS", "BROKERS")[0] is None


def test_the_last_descriptors_are_no_connections():
    admission, given = Admission(last_descriptors=70, spared_listener="BROKERS"), limits(100, 100)
    assert admission.admit("10.0.0.1", "OUTER", given, 69) is None
    assert admission.admit("10.0.0.1", "BROKERS", given, 70) == "70 descriptors are open"
    assert admission.total == 1


def test_a_limit_that_is_changed_holds_for_the_next_connection():
    admission = Admission()
    assert admitted(admission, limits(1, 9), "OUTER", "OUTER") == [None, "max.connections=1"]
    assert admitted(admission, limits(2, 9), "OUTER") == [None]


@pytest.mark.parametrize("text", ["127.0.0.1", "host.example:3", "127.0.0.1:-1", "127.0.0.1:many", ":5"])
def test_overrides_that_are_none_are_named(text):
    with pytest.raises(InvalidConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        limits(1, 1, text)
