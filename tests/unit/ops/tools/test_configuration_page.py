"""docs/configuration.md says what the tables of properties say, and those know all that Kafka knows."""

from pathlib import Path

import pytest

from millrace.config import ConfigType
from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, LIVE, kafka_properties
from millrace_broker.properties.restrictions import restriction
from millrace_tools.configuration_page import KEYS, render

PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"
SIGNIFICANT = {"-": "unknown there", "null": "none", "!": "must be given", '""': "empty"}
ROWS = kafka_properties()


def test_the_configuration_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(page), "python -m millrace_tools.configuration_page docs/configuration.md"


@pytest.mark.parametrize("scope", KEYS)
def test_every_property_of_kafka_is_known_with_its_type(scope):
    theirs = {name: row.type for (area, name), row in ROWS.items() if area == scope}
    assert {name: KEYS[scope][name].type for name in theirs} == theirs


def test_what_is_live_in_kafka_is_live_here():
    live = {name for (scope, name), row in ROWS.items() if scope == BROKER and row.changed == LIVE}
    assert not {name for name in live if not KEYS[BROKER][name].is_dynamic}


def test_kafkas_defaults_fit_where_they_are_not_refused():
    for (scope, name), row in ROWS.items():
        for text in row.defaults:
            if text not in SIGNIFICANT:
                KEYS[scope][name].parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "0"),
        ("num.io.threads", "many"),
        ("leader.imbalance.check.interval.seconds", "0"),
        ("remote.log.manager.task.retry.jitter", "0.6"),
        ("group.share.max.groups", "101"),
        ("auto.leader.rebalance.enable", "yes"),
        ("share.coordinator.state.topic.min.isr", "32768"),
        ("log.message.format.version", "newest"),
    ],
)
def test_a_property_without_effect_is_checked(name, text):
    with pytest.raises(InvalidConfigError, match=name.replace(".", r"\.")):
        KEYS[BROKER][name].parse(text)


def test_secrets_are_those_of_kafka_and_restrictions_have_no_effect():
    secrets = {name for (scope, name), row in ROWS.items() if row.type is ConfigType.PASSWORD}
    assert {name for name in secrets if not KEYS[BROKER][name].is_secret} == set()
    restricted = [name for name, key in KEYS[BROKER].items() if restriction(name) and key.has_effect]
    assert restricted == []
