"""The audit log is bounded, and no client can forge a line of it."""

import logging

import pytest

from millrace.security.acls import AclOperation, ResourceType
from millrace_broker.security.acls import authorizer
from millrace_broker.security.acls.acl_authorizer import AclAuthorizer
from millrace_broker.security.acls.authorizer import Access, AuditLog
from millrace_broker.security.client_session import ClientSession, Principal

ALICE = ClientSession("10.0.0.1", principal=Principal("User", "alice"))


class Time:
    now_ms = 0


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "millrace_broker.authorizer")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def access(time):
    return Access(AclAuthorizer(), AuditLog(lambda: time.now_ms))


def ask(access, name, **options):
    return access.permits(ALICE, AclOperation.READ, ResourceType.TOPIC, name, "LIST_OFFSETS", **options)


def test_what_is_denied_is_told(access, lines):
    assert not ask(access, "orders")
    (line,) = lines()
    assert line == (
        "Principal = User:alice is Denied Operation = Read from host = 10.0.0.1 "
        "on resource = Topic:LITERAL:orders for request = ListOffsets"
    )


def test_a_filter_does_not_tell(access, lines):
    ask(access, "orders", tells_denied=False)
    assert lines() == []


def test_what_is_allowed_is_told_to_those_who_want_all(time, caplog):
    allowing = Access(AclAuthorizer({ALICE.principal}), AuditLog(lambda: time.now_ms))
    caplog.set_level(logging.INFO, "millrace_broker.authorizer")
    assert ask(allowing, "orders")
    assert caplog.records == []
    caplog.set_level(logging.DEBUG, "millrace_broker.authorizer")
    ask(allowing, "orders")
    (record,) = caplog.records
    assert (record.levelno, "is Allowed" in record.getMessage()) == (logging.DEBUG, True)


def test_a_line_is_written_once_in_ten_seconds(access, lines, time):
    for _ in range(100):
        ask(access, "orders")
    assert len(lines()) == 1
    time.now_ms = 10_000
    ask(access, "orders")
    assert lines()[1:] == ["99 more decisions, most of them the same, were left out", lines()[0]]


def test_few_lines_are_written_however_many_names_a_client_makes_up(access, lines, monkeypatch):
    monkeypatch.setattr(authorizer, "MAX_LINES", 10)
    for number in range(100):
        ask(access, f"t{number}")
    assert len(lines()) == 10


def test_a_name_can_not_forge_a_line(access, lines):
    ask(access, "x\nPrincipal = User:admin is Allowed" + "y" * 1000)
    (line,) = lines()
    assert "\n" not in line
    assert "Topic:LITERAL:x\\x0aPrincipal" in line
    assert len(line) < 500
