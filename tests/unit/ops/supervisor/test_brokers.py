"""Where the brokers of a platform are, and how many replicas their topics get."""

import pytest

from millrace.errors import SetupError
from millrace_ops.supervisor.brokers import broker_places, replication_properties


def test_one_broker_is_where_the_options_say():
    [place] = broker_places(1, "127.0.0.1:0", "127.0.0.1:9644", "example:9092")
    assert place == (1, "broker", "broker", "127.0.0.1:0", "127.0.0.1:9644", "example:9092")


def test_further_brokers_have_the_next_ports_and_their_own_folders():
    places = broker_places(3, "0.0.0.0:9092", "127.0.0.1:9644", "example:19092")
    assert [one.listen for one in places] == ["0.0.0.0:9092", "0.0.0.0:9093", "0.0.0.0:9094"]
    assert [one.admin for one in places] == ["127.0.0.1:9644", "127.0.0.1:9645", "127.0.0.1:9646"]
    assert [one.advertised for one in places] == ["example:19092", "example:19093", "example:19094"]
    assert [(one.id, one.part, one.service) for one in places] == [
        (1, "broker 1", "broker"),
        (2, "broker 2", "broker-2"),
        (3, "broker 3", "broker-3"),
    ]


def test_free_ports_are_chosen_before_the_start_so_that_a_restart_keeps_them():
    places = broker_places(3, "127.0.0.1:0", "127.0.0.1:0", None)
    ports = [address.rpartition(":")[2] for one in places for address in (one.listen, one.admin)]
    assert "0" not in ports


def test_ports_end():
    with pytest.raises(SetupError, match="broker 2 would have the port 65536"):
        broker_places(2, "127.0.0.1:65535", "127.0.0.1:9644", None)


def test_replicas_are_as_many_as_there_are_brokers():
    assert replication_properties(1) == {}
    two, three, five = (replication_properties(count) for count in (2, 3, 5))
    assert (two["default.replication.factor"], two["min.insync.replicas"]) == ("2", "1")
    assert (three["offsets.topic.replication.factor"], three["transaction.state.log.min.isr"]) == ("3", "2")
    assert five == three
