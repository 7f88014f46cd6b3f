"""The limits of a broker's connections, and those of its listeners."""

from millrace_broker.properties.listeners import ConnectionLimits


def limits(**properties):
    return ConnectionLimits.from_properties({name.replace("_", "."): text for name, text in properties.items()})


def test_a_listener_has_the_limits_of_the_broker_where_it_has_none_of_its_own():
    own = {"listener_name_outer_max_connections": "3", "listener_name_OTHER_max_connections": "9"}
    found = limits(max_connections="7", **own)
    assert [found.open(name) for name in ("OUTER", "OTHER", "INNER")] == [3, 9, 7]


def test_a_rate_is_no_limit_by_default_and_may_be_lifted_for_one_listener():
    assert limits().per_second("OUTER") is None
    found = limits(
        max_connection_creation_rate="5",
        listener_name_outer_max_connection_creation_rate="2",
        listener_name_inner_max_connection_creation_rate="2147483647",
    )
    assert [found.per_second(name) for name in ("OUTER", "INNER", "ANOTHER")] == [2.0, None, 5.0]


def test_what_limits_no_connections_is_passed_over():
    found = limits(listener_name_outer_num_network_threads="3", num_partitions="2")
    assert (found.own, found.broker.num_partitions) == ({}, 2)
