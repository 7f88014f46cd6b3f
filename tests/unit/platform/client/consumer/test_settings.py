"""Properties of a `ConsumerConnector`: the names that mean the same, and what is refused."""

import pytest

from millrace.client.consumer.config import ConsumerConfig
from millrace.client.fetched import IsolationLevel
from millrace.errors import InvalidConfigError

GROUP = {"group.id": "g"}


@pytest.mark.parametrize(
    "properties",
    [
        {"zookeeper.connect": "z:2181"},
        {"zk.connect": "z:2181"},
        {"zk.connect": "z:2181", "zookeeper.connect": "z:2181"},
    ],
)
def test_zookeeper_goes_by_both_of_its_names(properties):
    assert ConsumerConfig.from_properties(GROUP | properties).zookeeper_connect == "z:2181"


def test_two_names_that_contradict_each_other_are_refused():
    with pytest.raises(InvalidConfigError, match=r"zookeeper\.connect is given twice, with different values"):
        ConsumerConfig.from_properties(GROUP | {"zk.connect": "a:1", "zookeeper.connect": "b:1"})


@pytest.mark.parametrize(
    ("properties", "isolation"),
    [
        ({}, IsolationLevel.READ_COMMITTED),
        ({"isolation.level": "read_committed"}, IsolationLevel.READ_COMMITTED),
        ({"isolation.level": "read_uncommitted"}, IsolationLevel.READ_UNCOMMITTED),
    ],
)
def test_isolation_levels(properties, isolation):
    assert ConsumerConfig.from_properties(GROUP | {"zk.connect": "z:2181"} | properties).isolation is isolation


def test_an_isolation_level_that_is_none_is_refused():
    with pytest.raises(
        InvalidConfigError, match=r"serializable for configuration isolation\.level: String must be one of"
    ):
        ConsumerConfig.from_properties(GROUP | {"zk.connect": "z:2181", "isolation.level": "serializable"})
