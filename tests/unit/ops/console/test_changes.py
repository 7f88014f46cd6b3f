"""What forms of the console ask for: topics, records and properties, or the sentence that says why not."""

import pytest

from millrace.client.configs import Property
from millrace.client.producer.plugins import partition_for_key
from millrace.errors import InvalidConfigError, InvalidRequestError
from millrace_ops.console.pages.changes import (
    DEFAULT,
    NewTopic,
    NewValue,
    check_is_as_shown,
    check_is_users,
    new_value,
    parse_record,
    parse_topic,
    partition_of,
)

OWN = Property("retention.ms", "5", "topic", False)
INHERITED = Property("retention.ms", "604800000", "default", False)


@pytest.mark.parametrize(
    ("form", "topic"),
    [
        ({"name": " weather "}, NewTopic("weather", DEFAULT, DEFAULT, {})),
        ({"name": "a", "partitions": " 3 ", "replicas": "2"}, NewTopic("a", 3, 2, {})),
        (
            {"name": "a", "config": "retention.ms=1\r\n\r\n cleanup.policy=compact\n"},
            NewTopic("a", DEFAULT, DEFAULT, {"retention.ms": "1", "cleanup.policy": "compact"}),
        ),
    ],
)
def test_a_form_of_a_topic(form, topic):
    assert parse_topic(form) == topic


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"partitions": "0"}, InvalidRequestError),
        ({"partitions": "-1"}, InvalidRequestError),
        ({"partitions": "x"}, InvalidRequestError),
        ({"replicas": "40000"}, InvalidRequestError),
        ({"config": "retention.ms"}, InvalidConfigError),
    ],
)
def test_a_form_that_makes_no_topic(form, error):
    with pytest.raises(error):
        parse_topic({"name": "a", **form})


@pytest.mark.parametrize(
    ("form", "record"),
    [
        ({}, (None, b"", ())),
        ({"key": "Wien", "value": "größer"}, (b"Wien", "größer".encode(), ())),
        ({"value": "a\r\nb\rc\n"}, (None, b"a\nb\rc\n", ())),
        ({"key": "k", "value": "left out", "is_null": "1"}, (b"k", None, ())),
        ({"headers": "a=1\r\n\r\nb = x=y"}, (None, b"", (("a", b"1"), ("b", b" x=y")))),
    ],
)
def test_a_form_of_a_record(form, record):
    found = parse_record(form)
    assert (found.key, found.value, found.headers) == record


@pytest.mark.parametrize("headers", ["a", "=1", " =1", "a=1\nb"])
def test_headers_that_are_none(headers):
    with pytest.raises(InvalidRequestError, match="expected NAME=VALUE"):
        parse_record({"headers": headers})


def test_a_record_goes_where_clients_put_its_key():
    assert partition_of({"key": "Wien"}, [0, 1, 2]) == partition_for_key(b"Wien", 3)
    assert partition_of({"key": "Wien", "partition": "2"}, [0, 1, 2]) == 2
    assert partition_of({}, [0]) == 0
    for text in ("3", "x", "-1"):
        with pytest.raises(InvalidRequestError, match="there is no partition"):
            partition_of({"partition": text}, [0, 1, 2])


@pytest.mark.parametrize(
    ("found", "form", "change"),
    [
        (OWN, {"value": " 7 "}, NewValue("retention.ms", "5", "7")),
        (OWN, {"value": "7", "unset": "1"}, NewValue("retention.ms", "5", None)),
        (INHERITED, {"value": "7"}, NewValue("retention.ms", None, "7")),
    ],
)
def test_a_form_of_a_property(found, form, change):
    assert new_value(found, form) == change


def test_a_property_that_has_changed_since_is_not_changed():
    check_is_as_shown(NewValue("a", "5", "7"), {"now": "=5"})
    check_is_as_shown(NewValue("a", None, "7"), {"now": "default"})
    for now, shown in (("5", "=4"), ("5", "default"), (None, "=5"), ("default", "default"), ("5", None)):
        with pytest.raises(InvalidRequestError, match="by now, not as it was shown"):
            check_is_as_shown(NewValue("a", now, "7"), {"now": shown})


def test_nobody_writes_into_the_brokers_own_topics():
    check_is_users("weather")
    with pytest.raises(InvalidRequestError):
        check_is_users("__consumer_offsets")
