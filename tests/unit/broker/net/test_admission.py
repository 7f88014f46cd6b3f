"""Who may connect."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_broker.net.admission import Admission
from millrace_broker.properties.broker_config import BrokerConfig


def limits(connections, per_ip, overrides=""):
    return BrokerConfig.from_properties(
        {
            "max.connections": str(connections),
            "max.connections.per.ip": str(per_ip),
            "max.connections.per.ip.overrides": overrides,
        }
    )


def test_connections_are_limited_in_all_and_by_address():
    admission, config = Admission(), limits(3, 2)
    assert [admission.admit(one, config) for one in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")] == [
        None,
        None,
        "max.connections.per.ip=2",
        None,
        "max.connections=3",
    ]
    admission.leave("10.0.0.1")
    assert admission.admit("10.0.0.1", config) is None
    assert admission.total == 3


def test_an_address_may_have_a_limit_of_its_own():
    admission, config = Admission(), limits(100, 1, "127.0.0.1:2, [::1]:0")
    assert [admission.admit("127.0.0.1", config) for _ in range(3)] == [None, None, "max.connections.per.ip=2"]
    assert admission.admit("::1", config) == "max.connections.per.ip=0"
    assert admission.admit("127.0.0.2", config) is None


def test_the_last_descriptors_are_no_connections():
    admission, config = Admission(last_descriptors=70), limits(100, 100)
    assert admission.admit("10.0.0.1", config, 69) is None
    assert admission.admit("10.0.0.1", config, 70) == "70 descriptors are open"
    assert admission.total == 1


def test_a_limit_that_is_changed_holds_for_the_next_connection():
    admission = Admission()
    assert admission.admit("10.0.0.1", limits(1, 9)) is None
    assert admission.admit("10.0.0.1", limits(1, 9)) == "max.connections=1"
    assert admission.admit("10.0.0.1", limits(2, 9)) is None


@pytest.mark.parametrize("text", ["127.0.0.1", "host.example:3", "127.0.0.1:-1", "127.0.0.1:many", ":5"])
def test_overrides_that_are_none_are_named(text):
    with pytest.raises(InvalidConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        limits(1, 1, text)
