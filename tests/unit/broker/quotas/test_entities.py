"""Entities, what their properties become, and which a filter finds."""

import pytest

from millrace.errors import InvalidRequestError, UnsupportedVersionError
from millrace_broker.quotas.entities import (
    ANY,
    DEFAULT_ONE,
    EXACT,
    Component,
    EntityQuotas,
    Operation,
    altered,
    check_filter,
    entity_at,
    found,
    java_double,
    path_of,
)

PATHS = {
    "users/alice": {"user": "alice"},
    "users/<default>": {"user": None},
    "users/a%2Fb%20%2A": {"user": "a/b *"},
    "users/alice/clients/app": {"user": "alice", "client-id": "app"},
    "users/<default>/clients/<default>": {"user": None, "client-id": None},
    "clients/app": {"client-id": "app"},
    "clients/<default>": {"client-id": None},
    "ips/192.0.2.1": {"ip": "192.0.2.1"},
    "ips/::1": {"ip": "::1"},
    "ips/<default>": {"ip": None},
}


@pytest.mark.parametrize(("path", "entity"), PATHS.items(), ids=str)
def test_an_entity_has_its_path(path, entity):
    assert path_of(entity) == path
    assert entity_at(path) == entity


def test_other_paths_are_no_entities():
    assert [entity_at(path) for path in ("topics/t", "users", "users/a/clients", "ips/a/b")] == [None] * 4


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ({}, "needs a user"),
        ({"group": "g"}, "'group' is not known"),
        ({"user": ""}, "'user' is empty"),
        ({"ip": "1.2.3.4", "user": "alice"}, "can't be combined"),
        ({"ip": "localhost"}, "localhost is not an IP address"),
    ],
)
def test_what_is_no_entity_is_refused(entity, message):
    with pytest.raises(InvalidRequestError, match=message):
        path_of(entity)


def test_quotas_are_set_and_removed_and_credentials_stay():
    before = {"SCRAM-SHA-256": "salt", "producer_byte_rate": "1", "consumer_byte_rate": "2"}
    operations = [
        Operation("producer_byte_rate", 1048576.0),
        Operation("consumer_byte_rate", None),
        Operation("request_percentage", 12.5),
        Operation("controller_mutation_rate", 10.0),
        Operation("SCRAM-SHA-256", None),
        Operation("other", None),
    ]
    assert altered(before, {"user": "alice"}, operations) == {
        "SCRAM-SHA-256": "salt",
        "producer_byte_rate": "1048576",
        "request_percentage": "12.5",
        "controller_mutation_rate": "10.0",
    }
    assert altered({}, {"ip": None}, [Operation("connection_creation_rate", 5.0)]) == {"connection_creation_rate": "5"}


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        ({"user": "a"}, "connection_creation_rate", 1.0, "is not a quota of this entity"),
        ({"ip": "::1"}, "producer_byte_rate", 1.0, "is not a quota of this entity"),
        ({"user": "a"}, "SCRAM-SHA-256", 1.0, "is not a quota of this entity"),
        ({"user": "a"}, "producer_byte_rate", 1.5, "must be a LONG value"),
        ({"user": "a"}, "producer_byte_rate", 1e30, "must be a LONG value"),
        ({"ip": "::1"}, "connection_creation_rate", 3e9, "must be a INT value"),
        ({"user": "a"}, "request_percentage", -1.0, "of 0 or more"),
        ({"user": "a"}, "request_percentage", float("nan"), "of 0 or more"),
    ],
)
def test_what_is_no_quota_of_the_entity_is_refused(entity, key, value, message):
    with pytest.raises(InvalidRequestError, match=message):
        altered({}, entity, [Operation(key, value)])


def test_numbers_are_written_as_java_writes_them():
    values = (0.0, 0.5, 200.0, 12.25, 0.001, 0.0001, 9999999.0, 1e7, 12345678.9, 1.5e10, 2.5e-7, float("inf"))
    assert [java_double(value) for value in values] == [
        "0.0", "0.5", "200.0", "12.25", "0.001", "1.0E-4", "9999999.0", "1.0E7", "1.23456789E7", "1.5E10", "2.5E-7",
        "Infinity",
    ]  # fmt: skip


CONFIGS = {path: {"producer_byte_rate": "1"} for path in PATHS if not path.startswith("ips")} | {
    "ips/::1": {"connection_creation_rate": "2"},
    "ips/<default>": {"connection_creation_rate": "3"},
    "users/bob": {"SCRAM-SHA-256": "salt"},
}


def paths(*components, strict=False):
    return [path_of(one.entity) for one in found(CONFIGS, components, is_strict=strict)]


def test_the_empty_filter_finds_everything_or_nothing():
    assert paths() == [path for path in PATHS if path != "ips/192.0.2.1"]
    assert paths(strict=True) == []


def test_a_component_finds_names():
    assert paths(Component("user", EXACT, "alice")) == ["users/alice", "users/alice/clients/app"]
    assert paths(Component("user", EXACT, "alice"), strict=True) == ["users/alice"]
    assert paths(Component("user", DEFAULT_ONE, None), strict=True) == ["users/<default>"]
    assert paths(Component("user", ANY, None), strict=True) == ["users/alice", "users/<default>", "users/a%2Fb%20%2A"]
    assert paths(Component("client-id", ANY, None), strict=True) == ["clients/app", "clients/<default>"]
    both = Component("user", ANY, None), Component("client-id", DEFAULT_ONE, None)
    assert paths(*both) == paths(*both, strict=True) == ["users/<default>/clients/<default>"]
    assert paths(Component("ip", ANY, None)) == ["ips/::1", "ips/<default>"]
    assert paths(Component("ip", EXACT, "::1"), strict=True) == ["ips/::1"]
    assert paths(Component("user", EXACT, "bob")) == []


def test_values_are_numbers():
    assert list(found(CONFIGS, [Component("ip", DEFAULT_ONE, None)], is_strict=False)) == [
        EntityQuotas({"ip": None}, {"connection_creation_rate": 3.0})
    ]


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([Component("", ANY, None)], InvalidRequestError, "has no entity type"),
        ([Component("user", ANY, None)] * 2, InvalidRequestError, "2 times"),
        ([Component("host", ANY, None)], UnsupportedVersionError, "'host' is not known"),
        ([Component("ip", ANY, None), Component("user", ANY, None)], InvalidRequestError, "can't be combined"),
        ([Component("user", 3, None)], InvalidRequestError, "match type 3"),
    ],
)
def test_a_filter_that_can_not_be_is_refused(components, error, message):
    with pytest.raises(error, match=message):
        check_filter(components)
