"""What a maintenance request asks for: by its query or its body, with errors that name the field."""

import pytest

from millrace.errors import InvalidRequestError, UnknownTopicError
from millrace_broker.admin.requests import MaintenanceRequest, read_request, selected_topics

KNOWN = {"flights", "logs-eu", "logs-us", "weather"}


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ([], b"", MaintenanceRequest()),
        ([], b" \n", MaintenanceRequest()),
        ([], b"{}", MaintenanceRequest()),
        (
            [("topics", "a,b"), ("topics", "c"), ("dry_run", "true")],
            b"",
            MaintenanceRequest(("a", "b", "c"), dry_run=True),
        ),
        ([], b'{"topics": ["a", "b-*"], "dry_run": false}', MaintenanceRequest(("a", "b-*"))),
        ([], b'{"topics": "a"}', MaintenanceRequest(("a",))),
        ([], b'{"topics": []}', MaintenanceRequest()),
        ([("dry_run", "true")], b'{"topics": ["a"]}', MaintenanceRequest(("a",), dry_run=True)),
        ([("topics", "b")], b'{"topics": ["a"]}', MaintenanceRequest(("a", "b"))),
    ],
)
def test_query_and_body_say_the_same(query, body, expected):
    assert read_request("retention", query, body) == expected


def test_compaction_alone_may_be_of_what_is_due():
    assert read_request("compaction", [("only_due", "true")], b"").only_due
    with pytest.raises(InvalidRequestError, match="only_due: unknown field of retention, expected topics, dry_run"):
        read_request("retention", [("only_due", "true")], b"")


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        ([("topic", "a")], b"", "topic: unknown field of retention, expected topics, dry_run"),
        ([("dry_run", "yes")], b"", "dry_run: true or false is expected, not 'yes'"),
        ([("dry_run", "true"), ("dry_run", "true")], b"", "dry_run: the field is given twice"),
        ([("dry_run", "true")], b'{"dry_run": true}', "dry_run: the field is given twice"),
        ([("topics", "")], b"", r"topics: a list of names and patterns is expected, not \[''\]"),
        ([], b'{"dry_run": 1}', "dry_run: true or false is expected, not 1"),
        ([], b'{"topics": [1]}', r"topics: a list of names and patterns is expected, not \[1\]"),
        ([("topics", "a")], b'{"topics": 5}', "topics: a list of names and patterns is expected, not 5"),
        ([], b"topics", "the body is no JSON: "),
        ([], b"\xff", "the body is no JSON: "),
        ([], b"[" * 100_000, "the body is no JSON: "),
        ([], b"[]", "the body is no JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(query, body, message):
    with pytest.raises(InvalidRequestError, match=message):
        read_request("retention", query, body)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((), None),
        (("weather",), {"weather"}),
        (("logs-*", "weather"), {"logs-eu", "logs-us", "weather"}),
        (("logs-[ae]?",), {"logs-eu"}),
        (("none-*",), set()),
    ],
)
def test_names_and_patterns_select_topics(wanted, expected):
    assert selected_topics(wanted, KNOWN) == expected


def test_unknown_names_are_refused_by_name():
    with pytest.raises(UnknownTopicError, match="topics: this broker has no log of 'flight', 'wether'"):
        selected_topics(("wether", "flights", "flight", "logs-*"), KNOWN)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (MaintenanceRequest(), True),
        (MaintenanceRequest(only_due=True), True),
        (MaintenanceRequest(dry_run=True), False),
        (MaintenanceRequest(("a",)), False),
    ],
)
def test_only_a_request_for_all_topics_that_does_something_spares_the_timer(request_, expected):
    assert request_.does_everything is expected
